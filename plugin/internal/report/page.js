"use strict";

// The page is complete without this script, which adds filters and sorting. Long lists show their first items until the
// reader asks for all.
const atFirst = 100;
const collator = new Intl.Collator("en", { numeric: true });

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function enhance(section) {
  const tools = section.querySelector(".tools");
  const items = [...section.querySelectorAll("[data-item]")];
  if (items.length < 2) return;
  const texts = new Map(items.map((item) => [item, item.textContent.toLowerCase()]));
  const search = element("input", { type: "search", autocomplete: "off", spellcheck: false });
  const state = element("select", {}, element("option", { value: "", textContent: "all" }));
  const shown = element("output", { ariaLive: "polite" });
  const more = element("button", { type: "button" });
  let showsAll = items.length <= atFirst;

  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let matches = 0;
    for (const item of section.querySelectorAll("[data-item]")) {
      const text = texts.get(item);
      const fits = words.every((word) => text.includes(word)) && (!state.value || item.dataset.item === state.value);
      matches += fits ? 1 : 0;
      item.hidden = !fits || (!showsAll && matches > atFirst);
    }
    const visible = showsAll ? matches : Math.min(matches, atFirst);
    shown.textContent = `${visible} of ${items.length} shown`;
    more.hidden = visible === matches;
    more.textContent = `Show all ${matches}`;
  }

  search.addEventListener("input", update);
  state.addEventListener("change", update);
  more.addEventListener("click", () => { showsAll = true; update(); });
  tools.append(element("label", {}, `Filter ${section.dataset.enhance}`, search));
  const states = [...new Set(items.map((item) => item.dataset.item))].filter(Boolean);
  if (states.length > 1) {
    for (const value of states) {
      const label = items.find((item) => item.dataset.item === value).dataset.label || value;
      state.append(element("option", { value, textContent: label }));
    }
    tools.append(element("label", {}, "State", state));
  }
  tools.append(shown, more);
  for (const head of section.querySelectorAll("thead th[data-sort]")) sortable(head, update);
  update();
}

// sortable turns a column header into a button that sorts the rows, first in ascending order.
function sortable(head, update) {
  const button = element("button", { type: "button" }, ...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const order = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order === 1 ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const keys = [...body.rows].map((row) => {
      const cell = row.cells[head.cellIndex];
      return [cell.dataset.sort || cell.textContent, row];
    });
    keys.sort((a, b) => order * collator.compare(a[0], b[0]));
    body.append(...keys.map(([, row]) => row));
    update();
  });
}

for (const section of document.querySelectorAll("[data-enhance]")) enhance(section);
