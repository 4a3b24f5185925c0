// Load… : decisions of a file. Newer decisions that were made here are not replaced without asking.
"use strict";

// Returns a message, and the decisions before, for undo.
async function loadDecisions(decisions, text) {
  await loadTexts();
  const { given, unknown, changed, several, error } = parseDecisions(text);
  if (error) return [error, []];
  const older = [...given].filter(([row, decision]) => decisions.isOlder(row, decision)).map(([row]) => row);
  const choice = older.length ? await ask(older) : "file";
  if (!choice) return ["nothing was loaded", []];
  if (choice === "newer") for (const row of older) given.delete(row);
  const before = [...given].map(([row, decision]) => [row, decisions.set(row, decision)]);
  const parts = [`${plural(given.size, "decision")} loaded`];
  if (choice === "newer") parts.push(`${older.length} newer ones kept`);
  const kept = decisions.team.served ? () => true : (row) => !decisions.unstored.has(row.id);
  const lost = [...given.keys()].filter((row) => !kept(row)).length;
  if (lost) parts.push(`${lost} of them could not be stored, because the browser's storage is full: export them`);
  if (several) parts.push(`${several} times several reviewers had decided: the newest decision was taken`);
  if (unknown.length) parts.push(`${unknown.length} for utterances that are not in this report`);
  if (changed.length) parts.push(`refused, because the transcript is different now: ${nameSome(changed)}`);
  return [parts.join("; "), before];
}

// Ask what to do with decisions of the file that are older than those made here: "newer", "file", or "" to load nothing.
function ask(older) {
  const dialog = byName("older");
  const ids = nameSome(older.map((row) => row.id));
  const [are, those] = older.length === 1 ? ["is", "that"] : ["are", "those"];
  byName("older-text").textContent =
    `${plural(older.length, "decision")} of the file ${are} older than ${those} made here: ${ids}.`;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}
