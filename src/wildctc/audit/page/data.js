// The report's data. A page opened from disk may not fetch files, so its data are scripts: they call the functions
// of `wildctc`.
"use strict";

const KINDS = ["changed", "extra", "missing"];
const KIND_NAMES = { changed: "changed", extra: "extra text", missing: "missing text" };
const KIND_SIGNS = { changed: "~", extra: "−", missing: "+" };

const report = { info: null, rows: [], byId: new Map() };
const rowFiles = [];
const detailFiles = new Map(); // number → values; the most recently used is last
const KEPT = 40; // files of details that are kept in memory

const wildctc = {
  report(info) {
    report.info = info;
  },
  rows(number, values) {
    rowFiles[number] = values;
  },
  details(number, values) {
    detailFiles.set(number, values);
  },
};

// Load a script from the report's folder. Resolves when it has run.
function loadScript(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.charset = "utf-8";
    script.onload = () => {
      script.remove();
      resolve();
    };
    script.onerror = () => reject(new Error(`${address} cannot be read: is the folder of the report complete?`));
    document.head.append(script);
  });
}

const numbered = (name, number) => `data/${name}-${String(number).padStart(4, "0")}.js`;

async function loadReport() {
  await loadScript("data/report.js");
  const numbers = Array.from({ length: report.info.rowFiles }, (_, i) => i);
  await Promise.all(numbers.map((number) => loadScript(numbered("rows", number))));
  report.rows = rowFiles.flat().map(makeRow);
  report.byId = new Map(report.rows.map((row) => [row.id, row]));
  rowFiles.length = 0;
}

function makeRow(values, number) {
  const [id, speaker, text, heard, suspicion, duration, audio, offset, shade, words, issues] = values;
  const row = { number, id, speaker, text, heard, suspicion, duration, audio, offset, shade, worst: [0, 0, 0] };
  row.words = words.map(([begin, stop, start, end, bypass]) => ({ begin, stop, start, end, bypass }));
  row.issues = issues.map(([kind, begin, stop, start, end, score, word, heard]) => {
    row.worst[kind] = Math.max(row.worst[kind], score);
    return { kind: KINDS[kind], begin, stop, start, end, score, word, heard, written: text.slice(begin, stop) };
  });
  return row;
}

const speakerName = (row) => report.info.speakers[row.speaker];

// The data that only the chosen utterance needs: tokens, unwritten sounds, what was heard at each word, the peaks of
// the sound, the name of its file.
async function loadDetail(row) {
  const number = Math.floor(row.number / report.info.perDetails);
  if (!detailFiles.has(number)) await loadScript(numbered("details", number));
  const values = detailFiles.get(number);
  detailFiles.delete(number);
  detailFiles.set(number, values);
  if (detailFiles.size > KEPT) detailFiles.delete(detailFiles.keys().next().value);
  const [tokens, sounds, heard, peaks, file] = values[row.number % report.info.perDetails];
  return {
    tokens: tokens.map(([begin, stop, start, end, bypass, heard]) => ({ begin, stop, start, end, bypass, heard })),
    sounds: sounds.map(([time, count, heard]) => ({ time, count, heard })), // sounds that are not written
    heard,
    peaks: Uint8Array.from(atob(peaks), (char) => char.charCodeAt(0)),
    file,
  };
}

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
