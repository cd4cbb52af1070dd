"use strict";
// Charts: drawn once they are shown, again when the theme changes; algorithms switched on and off in all of them.

const { themes, specs, data, charts } = JSON.parse(document.getElementById("charts").textContent);
const root = document.documentElement;
const drawn = new Map(); // place -> result of vegaEmbed
const hidden = new Set();
const rowsOf = data.map(() => null);
let metric = root.dataset.metric;

function unpacked(index) {
  if (rowsOf[index]) return rowsOf[index];
  const rows = [];
  for (const [name, values] of data[index]) {
    values.forEach((value, at) => {
      rows[at] ??= {};
      rows[at][name] = value;
    });
  }
  return (rowsOf[index] = rows);
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

async function draw(place) {
  const chart = charts[place.dataset.chart];
  const spec = { ...specs[chart.spec], data: { values: unpacked(chart.data) }, description: chart.description };
  const theme = themes[prefersDark.matches ? "dark" : "light"];
  const quiet = { aria: false };
  const result = await vegaEmbed(place, spec, {
    mode: "vega-lite",
    renderer: "svg",
    ast: true,
    config: { ...theme, mark: quiet, legend: { ...theme.legend, ...quiet } },
    actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    downloadFileName: `chart-${place.dataset.chart}`,
  });
  drawn.get(place)?.finalize();
  drawn.set(place, result);
  place.querySelector("details > summary")?.setAttribute("aria-label", "Save this chart");
  tell(result.view);
}

// Draws one after the other, so that the page stays responsive, and no place twice at a time.
const queue = [];
let busy = false;

async function work() {
  if (busy) return;
  busy = true;
  while (queue.length) {
    const place = queue.shift();
    try {
      await draw(place);
    } catch (error) {
      place.textContent = `This chart cannot be drawn: ${error.message}. Its data are in the table below.`;
      console.error(error);
    }
    await new Promise((resume) => setTimeout(resume));
  }
  busy = false;
}

function ask(place) {
  if (!queue.includes(place)) queue.push(place);
  work();
}

function tell(view) {
  const signals = Object.keys(view.getState({ signals: (name) => ["hidden", "metric"].includes(name) }).signals);
  if (signals.includes("hidden")) view.signal("hidden", [...hidden]);
  if (signals.includes("metric")) view.signal("metric", metric);
  return view.runAsync();
}

function tellAll() {
  for (const { view } of drawn.values()) tell(view);
}

const places = [...document.querySelectorAll(".plot")];
// All that are shown, seen or not, because a page is printed as it is.
const drawShown = () => places.filter((place) => place.offsetParent !== null && !drawn.has(place)).forEach(ask);
addEventListener("load", drawShown);
prefersDark.addEventListener("change", () => [...drawn.keys()].forEach(ask));

// Legends: each algorithm has a button in every section of curves; they all act on all charts.
const keys = [...document.querySelectorAll(".keys")];

function showLegend() {
  for (const button of keys.flatMap((group) => [...group.querySelectorAll("[data-algorithm]")])) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.algorithm)));
  }
}

for (const group of keys) {
  group.hidden = false;
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const name = button.dataset.algorithm;
    const names = [...group.querySelectorAll("[data-algorithm]")].map((one) => one.dataset.algorithm);
    if (name === undefined) {
      const none = hidden.size === 0;
      hidden.clear();
      if (none) names.forEach((one) => hidden.add(one));
    } else if (!hidden.delete(name)) {
      hidden.add(name);
    }
    showLegend();
    tellAll();
  });
}

function choose(name, act) {
  for (const input of document.querySelectorAll(`input[name="${name}"]`)) {
    input.closest("fieldset").hidden = false;
    input.addEventListener("change", () => act(input.value));
    if (input.checked) act(input.value); // browsers keep the choice when a page is loaded again
  }
}

choose("metric", (value) => {
  metric = value;
  root.dataset.metric = value;
  tellAll();
});
choose("cost", (value) => {
  for (const part of document.querySelectorAll("[data-when]")) part.hidden = part.dataset.when !== value;
  drawShown();
});

// The table that stands for a chart, made when it is first opened.
function shown(value, scale, decimals) {
  if (value === null || value === undefined) return "–";
  return decimals === null ? String(value) : (value * scale).toFixed(decimals);
}

function element(name, text, scope) {
  const made = document.createElement(name);
  made.textContent = text;
  if (scope) made.scope = scope;
  return made;
}

function fill(details) {
  const chart = charts[details.previousElementSibling.dataset.chart];
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  chart.table.forEach(([, title]) => head.append(element("th", title, "col")));
  const lines = made.createTBody();
  for (const row of unpacked(chart.data)) {
    const line = lines.insertRow();
    for (const [field, , scale, decimals] of chart.table) line.append(element("td", shown(row[field], scale, decimals)));
  }
  const box = details.querySelector("div");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Data of the chart");
  box.replaceChildren(made);
}

for (const details of document.querySelectorAll(".plot + details.data")) {
  details.addEventListener("toggle", () => details.open && fill(details), { once: true });
}
