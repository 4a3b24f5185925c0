// The report's data. A page opened from disk may not fetch files, so its data are scripts: they call the functions
// of `wildctc`.
"use strict";

const KINDS = ["changed", "extra", "missing"];
const KIND_NAMES = { changed: "changed", extra: "extra", missing: "missing" };
const KIND_SIGNS = { changed: "~", extra: "−", missing: "+" };

const report = { info: null, rows: [], byId: new Map(), complete: false };
const SOON = 10; // files of texts: with so few, all are read at the start
const arrived = { index: [] }; // what scripts have passed
const underway = new Map(); // address → promise of a script that is being read

// Data files call these functions. `index` has what ranking and filters need; `texts` what a search needs; `details` all
// that is shown of an utterance. The rows are in the order of suspicion in all of them.
const wildctc = {
  report(info) {
    report.info = info;
  },
  index(number, columns) {
    arrived.index[number] = columns;
  },
  texts(number, values) {
    const first = number * report.info.perFile.texts;
    values.forEach((value, i) => setTexts(report.rows[first + i], value));
  },
  details(number, values) {
    const first = number * report.info.perFile.details;
    values.forEach((value, i) => setDetail(report.rows[first + i], value));
  },
};

const isServed = () => document.documentElement.dataset.server !== undefined;

// Load a script from the report's folder. Resolves when it has run.
function loadScript(address) {
  if (!underway.has(address)) underway.set(address, new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.charset = "utf-8";
    script.onload = () => {
      script.remove();
      resolve();
    };
    script.onerror = () => {
      underway.delete(address);
      const advice = isServed() ? "does the server still run" : "is the folder of the report complete";
      reject(new Error(`${address} cannot be read: ${advice}? Choose the utterance again.`));
    };
    document.head.append(script);
  }));
  return underway.get(address);
}

const numbered = (name, number) => `data/${name}-${String(number).padStart(4, "0")}.js`;
const loadFiles = (name) =>
  Promise.all(Array.from({ length: report.info.files[name] }, (_, i) => loadScript(numbered(name, i))));

async function loadReport() {
  await loadScript("data/report.js");
  await loadFiles("index");
  for (const columns of arrived.index)
    columns[0].forEach((_, i) => report.rows.push(makeRow(columns.map((column) => column[i]), report.rows.length)));
  report.byId = new Map(report.rows.map((row) => [row.id, row]));
  arrived.index.length = 0;
  if (report.info.files.texts <= SOON) await loadTexts();
}

function makeRow([id, place, speaker, suspicion, duration, checksum, kinds, scores], number) {
  const row = { number, id, place, speaker, suspicion, duration, checksum, kinds, scores };
  row.own = suspicion; // before rules about recurring findings
  setWorst(row, kinds, scores);
  return row;
}

// The worst score of each kind of finding, and how many are at least 0.5.
function setWorst(row, kinds, scores) {
  row.worst = [0, 0, 0];
  row.counts = [0, 0, 0];
  for (let i = 0; i < kinds.length; i++) {
    row.worst[kinds[i]] = Math.max(row.worst[kinds[i]], scores[i]);
    if (scores[i] >= 0.5) row.counts[kinds[i]]++;
  }
}

// The texts of all utterances: for a search, recurring findings, estimates and the export.
function loadTexts() {
  report.loading ??= loadFiles("texts").then(
    () => {
      report.complete = true;
      applyRules();
    },
    (error) => {
      report.loading = null;
      throw error;
    },
  );
  return report.loading;
}

function setTexts(row, [text, heard, issues]) {
  if (row.text !== undefined) return;
  row.text = text;
  row.heard = heard;
  row.every = issues.map(([begin, stop, start, end, word, heard], i) => {
    const written = text.slice(begin, stop);
    return { kind: KINDS[row.kinds[i]], score: row.scores[i], begin, stop, start, end, word, heard, written };
  });
  row.issues = row.every; // without those that a rule hides
  if (hidden.size) applyRule(row);
}

function setDetail(row, [text, heard, issues, audio, offset, shade, words, tokens, sounds, peaks, loudest, picture, file]) {
  if (row.words) return;
  setTexts(row, [text, heard, issues]);
  Object.assign(row, { audio, offset, shade });
  row.words = words.map(([begin, stop, start, end, bypass, heard]) => ({ begin, stop, start, end, bypass, heard }));
  row.packed = { tokens, sounds, peaks, loudest, picture, file };
}

const speakerName = (row) => report.info.speakers[row.speaker];

// What is shown of an utterance: also its words and tokens, unwritten sounds, the peaks of the sound. Sets row.words.
async function loadDetail(row) {
  if (!row.words) await loadScript(numbered("details", Math.floor(row.number / report.info.perFile.details)));
  const { tokens, sounds, peaks, loudest, picture, file } = row.packed;
  return {
    tokens: tokens.map(([begin, stop, start, end, bypass, heard]) => ({ begin, stop, start, end, bypass, heard })),
    sounds: sounds.map(([time, count, heard]) => ({ time, count, heard })), // sounds that are not written
    peaks: bytesOf(peaks),
    loudest,
    picture,
    file,
  };
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// CRC-32 of a text in UTF-16: tells whether a decision is about the transcript of this report, before that is read.
function checksum(text) {
  checksum.table ??= Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  let value = 0xffffffff;
  const next = (byte) => (value = checksum.table[(value ^ byte) & 255] ^ (value >>> 8));
  for (let i = 0; i < text.length; i++) {
    next(text.charCodeAt(i) & 255);
    next(text.charCodeAt(i) >>> 8);
  }
  return (value ^ 0xffffffff) >>> 0;
}

const isAbout = (row, text) => (row.text === undefined ? checksum(text) === row.checksum : row.text === text);

// Create an element with properties and children. Strings become text, never markup.
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const byName = (id) => document.getElementById(id);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const seconds = (value) => `${value.toFixed(2)} s`;
