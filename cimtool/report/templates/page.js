"use strict";
// Headings of tables become buttons that sort; without this script the page is complete as it is.

function sortKey(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  return value === undefined ? cell.textContent.trim() : Number(value);
}

function compare(a, b, up) {
  // Cells without a value come last, whichever way the others are sorted.
  const missing = Number.isNaN(a) - Number.isNaN(b);
  if (missing || Number.isNaN(a)) { return missing; }
  const order = typeof a === "number" && typeof b === "number"
    ? (a > b) - (a < b)
    : String(a).localeCompare(String(b), "en", { numeric: true });
  return up ? order : -order;
}

function sortBy(table, heading) {
  const up = heading.getAttribute("aria-sort") !== "ascending";
  const column = heading.cellIndex;
  for (const other of table.tHead.rows[0].cells) { other.removeAttribute("aria-sort"); }
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(sortKey(a, column), sortKey(b, column), up));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, heading));
    heading.append(button);
  }
}

// Print everything, also what is folded, and fold it again.
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details:not([open])")) {
    folded.open = true;
    folded.dataset.folded = "";
  }
});
window.addEventListener("afterprint", () => {
  for (const folded of document.querySelectorAll("details[data-folded]")) {
    folded.open = false;
    delete folded.dataset.folded;
  }
});
