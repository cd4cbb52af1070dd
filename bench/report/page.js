"use strict";
// The rest of the page: links into closed parts, the list of runs, copying commands.

// What a run shares with others is shown inside it once it is opened.
function complete(run) {
  for (const link of run.querySelectorAll(".body > p > a")) {
    const shared = document.getElementById(link.hash.slice(1));
    if (!shared || link.dataset.done) continue;
    link.dataset.done = "yes";
    const copies = [...shared.children].slice(1).map((part) => part.cloneNode(true));
    run.querySelector(".command").before(...copies);
  }
}

for (const run of document.querySelectorAll("details.run")) {
  run.addEventListener("toggle", () => run.open && complete(run));
}

function reveal() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(target instanceof HTMLDetailsElement)) return;
  target.hidden = false;
  for (let part = target; part; part = part.parentElement?.closest("details")) part.open = true;
  target.scrollIntoView();
  target.querySelector("summary").focus({ preventScroll: true });
}

// On a telephone the list of flags would fill two screens.
if (matchMedia("(max-width: 40rem)").matches) document.getElementById("flags").open = false;

addEventListener("hashchange", reveal);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) reveal(); // no hashchange: it is there already
});
reveal();

// The list of runs.
const text = document.getElementById("find-run");
const state = document.getElementById("run-state");
const runs = [...document.querySelectorAll("details.run")];

function filter() {
  const wanted = text.value.trim().toLowerCase();
  for (const run of runs) {
    const words = `${run.id} ${run.firstElementChild.textContent}`.toLowerCase();
    const flagged = !state.value || (run.dataset.state || "").split(" ").includes(state.value);
    run.hidden = !flagged || !words.includes(wanted);
  }
}

text.form.addEventListener("input", filter);
text.form.addEventListener("submit", (event) => event.preventDefault());
text.form.hidden = false;
filter();

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
