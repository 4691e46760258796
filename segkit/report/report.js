"use strict";
// Tables of class "sortable" sort by a click on a column's header; a select with data-key="NAME" filters rows by
// data-NAME; a click on a picture makes it as wide as the page.

function value(row, column, numeric) {
  const text = row.cells[column].textContent.trim();
  return numeric ? Number(text || NaN) : text;
}

function compare(first, second, numeric) {
  if (!numeric) return first.localeCompare(second, undefined, { numeric: true });
  return first - second;
}

function sort(table, header) {
  const numeric = header.dataset.type === "number";
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [value(row, header.cellIndex, numeric), row]);
  const known = keyed.filter(([key]) => !Number.isNaN(key));
  const unknown = keyed.filter(([key]) => Number.isNaN(key)); // no score: last in either direction
  known.sort(([first], [second]) => direction * compare(first, second, numeric));
  body.append(...[...known, ...unknown].map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, header));
    header.append(button);
  }
}

for (const filters of document.querySelectorAll(".filters")) {
  const body = document.getElementById(filters.dataset.table).tBodies[0];
  const selects = [...filters.querySelectorAll("select")];
  const told = filters.querySelector("output");
  const apply = () => {
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = selects.some((select) => select.value && row.dataset[select.dataset.key] !== select.value);
      shown += !row.hidden;
    }
    const chosen = selects.filter((select) => select.value);
    const words = chosen.map((select) => `${select.parentNode.firstChild.data.trim()}: ${select.selectedOptions[0].text}`);
    told.textContent = [`${shown} of ${body.rows.length} rows`, ...words].join("; ");
  };
  for (const select of selects) select.addEventListener("change", apply);
  filters.hidden = false;
  apply();
}

for (const picture of document.querySelectorAll(".pictures img")) {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", "false");
  picture.replaceWith(button);
  button.append(picture);
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
  });
}
document.documentElement.classList.add("with-script");

// Paper cannot be unfolded.
const unfolded = new Set();
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    unfolded.add(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
  unfolded.clear();
});
