// The editor of the corrected transcript: a text field, into which findings can be copied one by one.
"use strict";

class Editor {
  constructor(onsave, onclose, onchange) {
    this.onchange = onchange;
    this.text = make("textarea", { dir: "auto", rows: 2, spellcheck: "false", "aria-label": "Corrected transcript" });
    const save = make(
      "button",
      { class: "main", onclick: () => onsave(this.value) },
      "Save fix ",
      make("kbd", {}, "Enter"),
    );
    const cancel = make("button", { onclick: onclose }, "Cancel ", make("kbd", {}, "Esc"));
    this.element = make("div", { class: "editor" }, this.text, make("div", { class: "buttons" }, save, cancel));
    this.text.addEventListener("input", () => this.follow());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        onsave(this.value);
      }
      if (event.key === "Escape") onclose();
      event.stopPropagation();
    });
  }

  get value() {
    return this.text.value.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
  }

  open(row, text) {
    this.before = row.text;
    // used: the finding was copied into the fix, or its text was edited by hand
    this.places = row.issues.map(({ begin, stop }) => ({ begin, stop, used: false }));
    this.text.value = text;
    this.follow();
    this.text.focus();
  }

  // Update the places of the findings after the text was changed in one place.
  follow() {
    const old = this.before,
      now = this.text.value;
    let same = 0,
      tail = 0;
    const least = Math.min(old.length, now.length);
    while (same < least && old[same] === now[same]) same++;
    while (tail < least - same && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
    const changed = old.length - tail;
    for (const place of this.places) {
      if (place.begin >= changed) {
        place.begin += now.length - old.length;
        place.stop += now.length - old.length;
      } else if (place.stop > same) place.used = true;
    }
    this.before = now;
    this.onchange();
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
  }

  // Replace the written text of a finding by what was heard.
  take(issue, number) {
    const place = this.places[number];
    if (place.used) return;
    place.used = true;
    let { begin, stop } = place;
    let heard = issue.heard;
    const { value } = this.text;
    if (issue.kind === "missing") heard = begin < value.length ? `${heard} ` : ` ${heard}`;
    else if (!heard && value[stop] === " ") stop++;
    else if (!heard && value[begin - 1] === " ") begin--;
    this.text.focus();
    this.text.setSelectionRange(begin, stop);
    // deprecated, but the only way of editing that the browser's own undo can undo
    if (heard) document.execCommand("insertText", false, heard);
    else document.execCommand("delete");
  }
}
