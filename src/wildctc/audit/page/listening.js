// What is played when: words, findings, a marked part, everything; speed, loop and autoplay.
"use strict";

const SPEEDS = [1, 1.25, 1.5, 2, 0.5, 0.75];
const CONTEXT = 0.3; // seconds that are also played before and after missing speech or extra text
const SHORTEST = 0.3; // seconds: a shorter part is played with what is around it
const AUTOPLAY = "wildctc-audit-autoplay";
const AUTOPLAYS = { off: "off", all: "all", finding: "worst" }; // what is played when an utterance is chosen

class Listening {
  // app: the application, with the chosen row, its detail and its player.
  constructor(app) {
    this.app = app;
    this.player = new Player((row, time) => row === app.row && app.detail.tick(time), say);
    this.finding = -1;
    try {
      this.auto = localStorage.getItem(AUTOPLAY) ?? "off";
    } catch {
      this.auto = "off";
    }
    if (!Object.hasOwn(AUTOPLAYS, this.auto)) this.auto = "off";
  }

  get row() {
    return this.app.row;
  }

  // Another utterance is shown.
  begin() {
    this.finding = -1;
    this.player.open(this.row);
    if (this.auto === "all") this.player.play(this.row);
    else if (this.auto === "finding" && this.row.issues.length) this.playFinding(0);
  }

  changeAutoplay() {
    const names = Object.keys(AUTOPLAYS);
    this.auto = names[(names.indexOf(this.auto) + 1) % names.length];
    try {
      localStorage.setItem(AUTOPLAY, this.auto);
    } catch {
      // it then holds until the page is closed
    }
    this.app.detail.showControls();
    if (this.auto === "all") this.player.play(this.row);
    else if (this.auto === "finding") this.playFinding(0);
  }

  play(start, end, word) {
    this.app.detail.setWord(word);
    const more = Math.max(0, SHORTEST - (end - start)) / 2;
    const { duration } = this.row;
    this.player.play(this.row, Math.max(0, start - more), Math.min(duration, Math.max(end + more, start + 0.05)));
  }

  // Play, pause, or go on: the marked part, if there is one, else everything.
  playAll() {
    const { player } = this;
    if (player.playing) return player.pause();
    if (player.paused) return player.resume();
    const [start, end] = this.app.detail.wave.selection ?? [0, this.row.duration];
    player.play(this.row, start, end);
  }

  playFromStart() {
    this.player.play(this.row);
  }

  playWord(number) {
    const word = this.row.words[number];
    if (word) this.play(word.start, word.end, number);
  }

  // The marked part, or the chosen word.
  playAgain() {
    const { selection } = this.app.detail.wave;
    if (selection) this.play(...selection, null);
    else this.playWord(this.app.detail.word ?? 0);
  }

  playFinding(number) {
    const issue = this.row.issues[number];
    if (!issue) return;
    this.finding = number;
    this.playIssue(issue);
  }

  playIssue(issue) {
    const around = issue.kind === "changed" ? 0 : CONTEXT;
    const word = issue.kind === "missing" ? null : issue.word;
    this.play(Math.max(0, issue.start - around), Math.min(this.row.duration, issue.end + around), word);
  }

  changeSpeed(step = 1) {
    const { audio } = this.player;
    const number = SPEEDS.indexOf(audio.playbackRate) + step;
    audio.defaultPlaybackRate = audio.playbackRate = SPEEDS.at(number % SPEEDS.length);
    this.app.detail.showControls();
  }

  changeLoop() {
    this.player.loop = !this.player.loop;
    this.app.detail.showControls();
  }
}
