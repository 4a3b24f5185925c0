// One row of the list.
"use strict";

const EXCERPT = 160; // characters

// Call back when the data of an utterance are there.
function whenRead(row, act) {
  loadDetail(row).then(act, (error) => say(error.message));
}

// made: the decision, if there is one. begun: whether a fix was begun and not saved. me: this reviewer's name.
function showRow(element, row, made, begun, me) {
  element.querySelectorAll(".excerpt").forEach(unshade);
  const excerpt = make("div", { class: "excerpt", dir: "auto" });
  if (row.words) showTranscript(excerpt, row, excerptStart(row), () => null, EXCERPT);
  else whenRead(row, () => element.row === row && showRow(element, row, made, begun, me));
  element.row = row;
  const speaker = speakerName(row);
  const worst = Math.max(...row.worst);
  const counts = KINDS.map((kind, number) => [kind, row.counts[number]]);
  element.replaceChildren(
    make(
      "div",
      { class: "head" },
      make("span", { class: "score", title: "Score of the worst finding" }, worst ? worst.toFixed(2) : "–"),
      make("bdi", { class: "id" }, row.id),
      speaker && make("bdi", { class: "speaker" }, speaker),
      ...counts.map(
        ([kind, n]) =>
          n > 0 &&
          make("span", { class: `sign ${kind}`, title: KIND_NAMES[kind] }, `${KIND_SIGNS[kind]}${n > 1 ? n : ""}`),
      ),
      (made || begun) &&
        make("span", { class: `made ${made?.decision ?? "draft"}` }, made ? DECISIONS[made.decision] : "draft"),
      made?.reviewer && made.reviewer !== me && make("bdi", { class: "by" }, made.reviewer),
    ),
    excerpt,
    make(
      "div",
      { class: "worst", dir: "auto" },
      ...(row.issues ? (row.issues.length ? differenceOf(row.issues[0]) : ["nothing doubtful"]) : ["…"]),
    ),
  );
  element.style.setProperty("--worst", worst);
}

// The first character of the list's excerpt, such that the worst finding is in it.
function excerptStart(row) {
  const { issues, words } = row;
  const worst = issues[0];
  if (!worst || worst.begin < 30) return 0;
  return words[Math.max(0, Math.min(worst.word, words.length - 1) - 2)].begin;
}
