// Extras only: without this the page says the same.
for (const table of document.querySelectorAll("table:not(.heat)")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, head, column));
    head.replaceChildren(button);
  });
}

function sortBy(table, head, column) {
  const direction = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => sign * compare(a.cells[column], b.cells[column], sign));
  table.tBodies[0].append(...rows);
}

// Cells with a number come first in either direction, then text.
function compare(a, b, sign) {
  const [x, y] = [a.dataset.order, b.dataset.order];
  if (x !== undefined && y !== undefined) return Number(x) - Number(y);
  if (x !== undefined) return -sign;
  if (y !== undefined) return sign;
  return a.textContent.localeCompare(b.textContent);
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

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
