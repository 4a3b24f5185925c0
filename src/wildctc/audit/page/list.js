// A list in which only the visible rows exist, so that ten thousand are as fast as ten. All rows have the same height.
"use strict";

const ROW_HEIGHT = 86;
const AROUND = 6; // rows that also exist above and below the visible ones

class VirtualList {
  // fill(element, row): shows a row in an element. choose(row, event): called when a row is clicked.
  constructor(element, fill, choose) {
    this.element = element;
    this.fill = fill;
    this.rows = [];
    this.chosen = -1;
    this.shown = new Map(); // index → element
    this.sheet = make("div", { class: "sheet", role: "presentation" });
    element.append(this.sheet);
    element.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(element);
    this.sheet.addEventListener("click", (event) => {
      const index = event.target.closest("[role=option]")?.index;
      if (index !== undefined) choose(this.rows[index], event);
    });
  }

  setRows(rows, chosen) {
    this.rows = rows;
    this.sheet.style.height = `${rows.length * ROW_HEIGHT}px`;
    this.clear();
    this.choose(chosen);
    this.draw();
  }

  choose(row) {
    const index = row ? this.rows.indexOf(row) : -1;
    this.shown.get(this.chosen)?.setAttribute("aria-selected", "false");
    this.chosen = index;
    this.shown.get(index)?.setAttribute("aria-selected", "true");
    if (index < 0) return this.element.removeAttribute("aria-activedescendant");
    const top = index * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + ROW_HEIGHT > scrollTop + clientHeight) this.element.scrollTop = top + ROW_HEIGHT - clientHeight;
    this.draw();
    this.element.setAttribute("aria-activedescendant", `option-${index}`);
  }

  // Show a row again after its decision has changed.
  refresh(row) {
    const element = this.shown.get(this.rows.indexOf(row));
    if (element) this.fill(element, row);
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - AROUND);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + AROUND);
    const free = [];
    for (const [index, element] of this.shown) {
      if (index >= first && index < last) continue;
      this.shown.delete(index);
      free.push(element);
    }
    for (let index = first; index < last; index++) {
      if (this.shown.has(index)) continue;
      const element = free.pop() ?? this.sheet.appendChild(make("div", { class: "row", role: "option" }));
      element.index = index;
      element.id = `option-${index}`;
      element.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
      element.setAttribute("aria-selected", String(index === this.chosen));
      element.setAttribute("aria-posinset", index + 1);
      element.setAttribute("aria-setsize", this.rows.length);
      this.fill(element, this.rows[index]);
      this.shown.set(index, element);
    }
    free.forEach((element) => this.drop(element));
  }

  clear() {
    for (const element of this.shown.values()) this.drop(element);
    this.shown.clear();
  }

  drop(element) {
    element.querySelectorAll(".excerpt").forEach(unshade);
    element.remove();
  }
}
