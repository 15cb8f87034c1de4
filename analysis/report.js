// Extras only: without this the page says the same.
"use strict";

for (const table of document.querySelectorAll("table:not(.heat)")) {
  if (table.tBodies[0].rows.length < 2) continue;
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, head, column));
    head.replaceChildren(button);
  });
}

// First click: numbers from the largest, words from A. Second: the other way round.
function sortBy(table, head, column) {
  const rows = [...table.tBodies[0].rows];
  const first = rows.some((row) => row.cells[column].dataset.value !== undefined) ? "descending" : "ascending";
  const other = { ascending: "descending", descending: "ascending" };
  const direction = other[head.getAttribute("aria-sort")] ?? first;
  table.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  rows.sort((a, b) => sign * compare(a.cells[column], b.cells[column], sign));
  table.tBodies[0].append(...rows);
}

// Cells with a number come first in either direction, then words; empty ones last.
function compare(a, b, sign) {
  const [x, y] = [a.dataset.value, b.dataset.value];
  if (x !== undefined && y !== undefined) return Number(x) - Number(y);
  if (x !== undefined) return -sign;
  if (y !== undefined) return sign;
  const [said, told] = [a.textContent.trim(), b.textContent.trim()];
  if (!said !== !told) return said ? -sign : sign;
  return said.localeCompare(told, undefined, { numeric: true });
}

// A box is a stop of the keyboard only while there is something to scroll in it.
function markStops() {
  for (const box of document.querySelectorAll(".scroll, .log")) {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }
}
markStops();
addEventListener("resize", markStops);
document.addEventListener("toggle", markStops, true);

// A chart of nights is one stop of the keyboard: the arrows lead from mark to mark, the line below reads it.
for (const chart of document.querySelectorAll(".chart")) {
  const [box, svg, readout] = [".plot", "svg", ".readout"].map((part) => chart.querySelector(part));
  const marks = [...svg.querySelectorAll(".marks path")];
  const places = marks.map((mark) => mark.getAttribute("d").match(/[\d.]+/g).slice(0, 2).map(Number));
  const tell = (mark) => {
    marks.forEach((other) => other.classList.toggle("at", other === mark));
    if (mark) readout.textContent = mark.textContent;
  };
  box.scrollLeft = box.scrollWidth; // the last nights first
  svg.addEventListener("focusin", ({ target }) => {
    marks.forEach((mark) => mark.setAttribute("tabindex", mark === target ? 0 : -1));
    tell(target);
  });
  svg.addEventListener("focusout", () => tell());
  svg.addEventListener("pointerleave", () => tell());
  svg.addEventListener("pointermove", ({ clientX, clientY }) => {
    const [x, y] = inUnits(svg, clientX, clientY);
    const far = places.map(([left, top]) => Math.hypot(left - x, (top - y) / 3));
    const nearest = far.indexOf(Math.min(...far));
    tell(far[nearest] < 40 ? marks[nearest] : undefined);
  });
  svg.addEventListener("keydown", (event) => {
    const last = marks.length - 1;
    const at = marks.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    marks[Math.min(Math.max(to, 0), last)].focus();
  });
}

function inUnits(svg, clientX, clientY) {
  const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
  return [x, y];
}

for (const box of document.querySelectorAll(".copyable")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => copy(box.querySelector("code"), button));
  box.prepend(button);
}

async function copy(code, button) {
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

// The navigation tells where the reader is: the last section that has begun.
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const parts = [...document.querySelectorAll("section")].filter((part) => links.has(part.id));
let waiting = false;
addEventListener("scroll", () => {
  if (!waiting) requestAnimationFrame(showPlace);
  waiting = true;
}, { passive: true });

function showPlace() {
  waiting = false;
  const begun = parts.filter((part) => part.getBoundingClientRect().top < innerHeight / 3).at(-1);
  const link = links.get(begun?.id);
  if (link?.hasAttribute("aria-current")) return;
  links.forEach((other) => other.removeAttribute("aria-current"));
  if (!link) return;
  link.setAttribute("aria-current", "true");
  const nav = link.closest("nav");
  nav.scrollTo(link.offsetLeft - nav.clientWidth / 3, link.offsetTop - nav.clientHeight / 2);
}

// Print shows what is folded, and folds it again.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((part) => (part.open = true));
});
addEventListener("afterprint", () => opened.forEach((part) => (part.open = false)));
