// Plays a part of an utterance and stops at its end.
"use strict";

class Player {
  // ontick(row, time): called during playing, with the seconds from the utterance's start; time is null at the end.
  constructor(ontick, onerror) {
    this.audio = new Audio();
    this.audio.preload = "auto";
    this.row = null;
    this.loop = false;
    this.halted = null; // the part that was paused
    this.turn = 0; // counts calls of play: an earlier call that still waits for its file gives up
    this.ontick = ontick;
    this.audio.addEventListener("ended", () => this.finish());
    this.audio.addEventListener("error", () => {
      if (this.row?.audio) onerror(`The sound cannot be played: ${decodeURIComponent(this.row.audio)}${advice()}`);
    });
  }

  get playing() {
    return !this.audio.paused;
  }

  // Whether a part is half played.
  get paused() {
    return this.halted !== null && !this.playing;
  }

  pause() {
    this.turn++;
    this.audio.pause();
    this.halted = this.part;
    this.ontick(this.row, this.audio.currentTime - this.row.offset, false);
  }

  // Go on to the end of the part.
  async resume() {
    const [row, start, end] = this.halted;
    const from = this.audio.currentTime - row.offset;
    await this.play(row, from < end - 0.02 ? from : start, end);
    this.part = [row, start, end]; // a loop begins at the start of the part
  }

  open(row) {
    if (this.row === row) return;
    this.stop();
    this.row = row;
    if (row.audio) this.audio.src = row.audio;
    else this.audio.removeAttribute("src");
  }

  async play(row, start = 0, end = row.duration) {
    this.open(row);
    if (!row.audio) return;
    const turn = ++this.turn;
    this.halted = null;
    this.audio.pause();
    if (this.audio.readyState < 1) await this.once("loadedmetadata", "error");
    if (turn !== this.turn || this.audio.error) return;
    this.audio.currentTime = row.offset + start;
    if (this.audio.seeking) await this.once("seeked", "error");
    if (turn !== this.turn) return;
    this.part = [row, start, end];
    this.end = row.offset + end;
    try {
      await this.audio.play();
    } catch {
      return; // another part was requested in the meantime, or the file cannot be played (the "error" event reports it)
    }
    this.watch(turn);
  }

  // Checks at each animation frame, which stops within a few hundredths of a second. The timer is for hidden windows,
  // which have no animation frames.
  watch(turn) {
    if (turn !== this.turn || this.audio.paused) return;
    const left = this.end - this.audio.currentTime;
    if (left <= 0) return this.finish();
    this.ontick(this.row, this.audio.currentTime - this.row.offset);
    clearTimeout(this.timer);
    const next = () => {
      cancelAnimationFrame(this.frame);
      clearTimeout(this.timer);
      this.watch(turn);
    };
    this.frame = requestAnimationFrame(next);
    this.timer = setTimeout(next, Math.max(4, (1000 * left) / this.audio.playbackRate));
  }

  // The part is over.
  finish() {
    if (this.loop && this.part) this.play(...this.part);
    else this.stop();
  }

  stop() {
    this.turn++;
    this.halted = null;
    this.audio.pause();
    if (this.row) this.ontick(this.row, null);
  }

  once(...names) {
    return new Promise((resolve) => {
      for (const name of names) this.audio.addEventListener(name, resolve, { once: true });
    });
  }
}

const advice = () =>
  report.info.linked
    ? ". This report links to audio files at another place; make it without --link-audio to move or send it."
    : "";
