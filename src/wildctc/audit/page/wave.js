// The outline or the spectrogram of the sound, with the extent of each token and word below it. A click plays the token or
// word at that place; dragging marks a part and plays it. Only what is visible is drawn, so that an hour is as fast as a
// second.
"use strict";

const WAVE = { sound: 84, tokens: 24, words: 26, least: 110, most: 4000 }; // pixels; `least` and `most` per second

class Wave {
  constructor(onplay) {
    this.onplay = onplay;
    this.zoom = 1;
    this.selection = null; // [start, end] in seconds
    this.view = { spectrogram: false, level: false };
    this.canvas = make("canvas", { role: "img", "aria-label": "Outline of the sound, with its tokens and words" });
    this.head = make("div", { class: "playhead", hidden: true });
    this.mark = make("div", { class: "marked", hidden: true });
    // labels are elements, not text on the canvas: they use the same fonts as the transcript, and stay sharp
    this.labels = make("div", { class: "labels", "aria-hidden": "true" });
    this.sheet = make("div", { class: "sheet" }, this.canvas, this.labels, this.mark, this.head);
    this.element = make("div", { class: "wave", tabindex: "0", role: "group", "aria-label": "Sound" }, this.sheet);
    this.element.addEventListener("pointerdown", (event) => this.press(event));
    this.element.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(row, detail) {
    this.row = row;
    this.detail = detail;
    this.zoom = 1;
    this.picture = null;
    this.element.scrollLeft = 0;
    this.select(null);
    this.tick(null);
    this.draw();
  }

  x(time) {
    return (time / this.row.duration) * this.width;
  }

  zoomBy(factor) {
    const { duration } = this.row;
    const middle = (this.element.scrollLeft + this.element.clientWidth / 2) / this.width;
    const around = this.selection ? (this.selection[0] + this.selection[1]) / 2 / duration : middle;
    const first = Math.max(this.element.clientWidth, WAVE.least * duration);
    this.zoom = Math.min((WAVE.most * duration) / first, Math.max(1, this.zoom * factor));
    this.draw();
    this.element.scrollLeft = around * this.width - this.element.clientWidth / 2;
    this.draw();
  }

  drawSoon() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    if (!this.detail || !this.element.clientWidth) return;
    const { clientWidth } = this.element;
    const height = WAVE.sound + WAVE.tokens + WAVE.words;
    this.width = Math.max(clientWidth, WAVE.least * this.row.duration) * this.zoom;
    this.sheet.style.width = `${this.width}px`;
    this.canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.canvas.height = Math.round(height * devicePixelRatio);
    this.canvas.style.width = `${clientWidth}px`;
    this.canvas.style.height = `${height}px`;
    this.left = Math.min(this.element.scrollLeft, this.width - clientWidth);
    const second = this.width / this.row.duration;
    this.from = this.left / second;
    this.to = (this.left + clientWidth) / second;
    const style = getComputedStyle(this.element);
    this.colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(devicePixelRatio, devicePixelRatio);
    this.pen.translate(-this.left, 0);
    this.labels.replaceChildren();
    if (this.view.spectrogram) this.drawSpectrogram();
    this.drawMissing();
    this.drawTokens();
    this.drawWords();
    if (!this.view.spectrogram) this.drawPeaks();
    this.drawSounds();
    this.showSelection();
  }

  visible({ start, end }) {
    return end >= this.from && start <= this.to;
  }

  box(start, end, top, height, colour, alpha) {
    this.pen.globalAlpha = alpha;
    this.pen.fillStyle = colour;
    this.pen.fillRect(this.x(start), top, Math.max(1, this.x(end) - this.x(start)), height);
    this.pen.globalAlpha = 1;
  }

  edge(time, top, height, colour) {
    this.pen.fillStyle = colour;
    this.pen.fillRect(Math.round(this.x(time)), top, 1, height);
  }

  // The picture is of all of the sound. Loud is dark on a light page, and light on a dark one.
  drawSpectrogram() {
    const { picture } = this.detail;
    if (!picture) return;
    if (!this.picture) {
      this.picture = new Image();
      this.picture.onload = () => this.draw();
      this.picture.src = picture;
    }
    if (!this.picture.complete || !this.picture.naturalWidth) return;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.pen.filter = dark ? "none" : "invert(1)";
    this.pen.drawImage(this.picture, 0, 0, this.width, WAVE.sound);
    this.pen.filter = "none";
  }

  // Speech that is not written: a dashed frame.
  drawMissing() {
    const { pen } = this;
    pen.strokeStyle = this.colour("missing");
    pen.setLineDash([4, 3]);
    for (const issue of this.row.issues.filter((issue) => issue.kind === "missing" && issue.score >= 0.5)) {
      if (!this.visible(issue)) continue;
      const left = this.x(issue.start),
        width = Math.max(4, this.x(issue.end) - left);
      this.box(issue.start, issue.end, 0, WAVE.sound, this.colour("missing"), 0.12);
      pen.strokeRect(left + 0.5, 1.5, width - 1, WAVE.sound - 3);
    }
    pen.setLineDash([]);
  }

  // A box for each token. The labels are whole grapheme clusters, each over all tokens that write it.
  drawTokens() {
    const { tokens } = this.detail;
    const top = WAVE.sound;
    for (const token of tokens) {
      if (!this.visible(token)) continue;
      const lane = this.view.spectrogram ? top : 0;
      if (token.bypass >= 0.1)
        this.box(token.start, token.end, lane, top - lane + WAVE.tokens, this.colour("shade"), 0.75 * token.bypass);
      this.edge(token.start, top - 14, WAVE.tokens + 14, this.colour("line"));
      this.edge(token.end, top - 14, WAVE.tokens + 14, this.colour("line"));
    }
    this.row.edgeSet ??= new Set(edgesOf(this.row));
    let first = 0;
    tokens.forEach((token, i) => {
      if (!this.row.edgeSet.has(token.stop)) return;
      const text = this.row.text.slice(tokens[first].begin, token.stop);
      this.label("token", text, tokens[first].start, token.end);
      first = i + 1;
    });
  }

  drawWords() {
    const top = WAVE.sound + WAVE.tokens;
    for (const word of this.row.words) {
      if (!this.visible(word)) continue;
      this.box(word.start, word.end, top, WAVE.words, this.colour("lane"), 1);
      if (word.bypass >= 0.1) this.box(word.start, word.end, top, WAVE.words, this.colour("shade"), 0.75 * word.bypass);
      for (const time of [word.start, word.end]) this.edge(time, 0, top + WAVE.words, this.colour("edge"));
      this.label("word", this.row.text.slice(word.begin, word.stop), word.start, word.end);
    }
  }

  // Text between two times; skipped if it is not visible, or if there is no room for a letter.
  label(lane, text, start, end) {
    const left = this.x(start),
      width = this.x(end) - left;
    if (width < 6 || !text.trim() || !this.visible({ start, end })) return;
    const label = make("span", { class: lane, dir: "auto" }, text);
    label.style.left = `${left}px`;
    label.style.width = `${width}px`;
    this.labels.append(label);
  }

  // The outline is as high as the loudest sound of the utterance, or, at the true level, as full scale.
  drawPeaks() {
    const { pen } = this;
    const { peaks, loudest } = this.detail;
    const middle = WAVE.sound / 2;
    const high = (middle - 4) * (this.view.level ? loudest : 1);
    pen.fillStyle = this.colour("sound");
    const step = Math.max(1, Math.floor((2 * peaks.length) / this.width));
    const second = peaks.length / this.row.duration;
    const first = Math.max(0, Math.floor((this.from * second) / step) * step);
    for (let i = first; i < Math.min(peaks.length, this.to * second + step); i += step) {
      const half = Math.max(0.5, (Math.max(...peaks.subarray(i, i + step)) / 255) * high);
      const left = (i / peaks.length) * this.width;
      pen.fillRect(left, middle - half, Math.max(1, (step / peaks.length) * this.width - 0.5), 2 * half);
    }
  }

  // A sign where sounds are not written, with what was heard there.
  drawSounds() {
    for (const { time, count, heard } of this.detail.sounds) {
      if (!this.visible({ start: time, end: time })) continue;
      const sign = make(
        "bdi",
        { class: "sound", title: `expected number of sounds that are not written: ${count.toFixed(2)}` },
        `+${heard}`,
      );
      sign.style.left = `${this.x(time)}px`;
      this.labels.append(sign);
    }
  }

  tick(time) {
    this.head.hidden = time === null;
    if (time === null) return;
    const x = this.x(time);
    this.head.style.transform = `translateX(${x}px)`;
    const { scrollLeft, clientWidth } = this.element;
    if (x < scrollLeft || x > scrollLeft + clientWidth - 20) this.element.scrollLeft = x - 40;
  }

  // Scroll so that a part is visible.
  reveal(start, end) {
    if (!this.width) return;
    const { scrollLeft, clientWidth } = this.element;
    if (this.x(start) < scrollLeft || this.x(end) > scrollLeft + clientWidth)
      this.element.scrollLeft = this.x((start + end) / 2) - clientWidth / 2;
  }

  // Mark a part: it stays until something else is clicked.
  select(part) {
    this.selection = part;
    this.showSelection();
  }

  showSelection() {
    this.mark.hidden = this.selection === null;
    if (this.selection === null) return;
    const [start, end] = this.selection;
    this.mark.style.left = `${this.x(start)}px`;
    this.mark.style.width = `${this.x(end) - this.x(start)}px`;
  }

  press(event) {
    if (!this.detail || event.button !== 0) return;
    const time = (e) => {
      const x = e.clientX - this.sheet.getBoundingClientRect().left;
      return Math.min(1, Math.max(0, x / this.width)) * this.row.duration;
    };
    const from = time(event);
    const y = event.clientY - this.sheet.getBoundingClientRect().top;
    const before = this.selection;
    const move = (e) => {
      const [start, end] = [Math.min(from, time(e)), Math.max(from, time(e))];
      this.select(this.x(end - start) < 5 ? null : [start, end]);
    };
    const over = new AbortController();
    const cancel = () => {
      over.abort();
      this.select(before);
    };
    const release = (e) => {
      over.abort();
      move(e);
      if (this.selection) this.onplay(...this.selection, null);
      else this.click(from, y);
    };
    const { signal } = over;
    window.addEventListener("pointermove", move, { signal });
    window.addEventListener("pointerup", release, { signal });
    window.addEventListener("pointercancel", cancel, { signal }); // the finger scrolls
  }

  click(time, y) {
    const inside = (part) => part.start <= time && time < part.end;
    const token = y > WAVE.sound && y < WAVE.sound + WAVE.tokens ? this.detail.tokens.find(inside) : null;
    const word = this.row.words.findIndex(inside);
    if (token) this.onplay(token.start, token.end, word);
    else if (word >= 0) this.onplay(this.row.words[word].start, this.row.words[word].end, word);
    else this.onplay(time, this.row.duration, null);
  }
}
