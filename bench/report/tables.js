"use strict";
// The leaderboard: sort by a heading, filter by what a row is about, choose the metric, save what is shown as CSV.

const table = document.getElementById("board");
const body = table.tBodies[0];
const rows = [...body.rows];
const filters = document.getElementById("filters");
const selects = [...filters.querySelectorAll("select")];
const find = document.getElementById("find");
const every = document.getElementById("every");
const count = document.getElementById("count");

function wanted(row) {
  if (!every.checked && row.classList.contains("other")) return false;
  const text = find.value.trim().toLowerCase();
  if (text && !row.textContent.toLowerCase().includes(text)) return false;
  return selects.every((select) => !select.value || row.dataset[select.dataset.field] === select.value);
}

function filter() {
  let shown = 0;
  for (const row of rows) {
    row.hidden = !wanted(row);
    shown += !row.hidden;
  }
  count.textContent = `${shown} of ${rows.length} row${rows.length === 1 ? "" : "s"} shown`;
}

// A number where the cell has one, else its text; cells without either go last whichever way is sorted.
function key(cell) {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  return cell.classList.contains("number") || text === "" ? null : text.toLowerCase();
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sort(head) {
  const column = head.cellIndex;
  const best = head.textContent.startsWith("accuracy") ? "descending" : "ascending";
  const other = best === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === best ? other : best;
  for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const keyed = [...body.rows].map((row, position) => ({ row, position, key: key(row.cells[column]) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.position - b.position;
    return sign * compare(a.key, b.key) || a.position - b.position;
  });
  body.append(...keyed.map((one) => one.row));
  table.classList.add("resorted");
}

function quoted(text) {
  // A leading sign would be a formula to a spreadsheet.
  const safe = /^[=+@\t\r]/.test(text) && isNaN(Number(text)) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

function visible(cell) {
  return cell.offsetParent !== null && !cell.classList.contains("lies");
}

function save() {
  const lines = [table.tHead.rows[0], ...body.rows].filter((row) => !row.hidden);
  const columns = [...table.tHead.rows[0].cells].map((head, at) => at).filter((at) => {
    const first = [...body.rows].find((row) => !row.hidden);
    return first && visible(first.cells[at]);
  });
  const text = lines.map((row) => columns.map((at) => quoted(row.cells[at].innerText.trim())).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "text/csv" }));
  link.download = `leaderboard-${document.documentElement.dataset.metric}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const head of table.tHead.rows[0].cells) {
  head.querySelector("button")?.addEventListener("click", () => sort(head));
}
filters.addEventListener("input", filter);
filters.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("clear").addEventListener("click", () => {
  filters.reset();
  filter();
});
document.getElementById("csv").addEventListener("click", save);
filters.hidden = false;
filter();
