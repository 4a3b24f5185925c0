// What the help says about this report.
"use strict";

const LISTED = 500; // at most so many utterances that could not be probed are listed

function fillHelp() {
  const { settings, leftOut, linked } = report.info;
  byName("linked").hidden = !linked;
  const known = Object.entries(settings).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  byName("settings").textContent = known.join(", ");
  byName("left-out").hidden = leftOut.length === 0;
  byName("left-out").firstChild.textContent = `${plural(leftOut.length, "utterance")} could not be probed`;
  const reasons = leftOut.slice(0, LISTED).map(([id, reason]) => make("li", {}, make("bdi", {}, id), `: ${reason}`));
  byName("left-out").lastChild.append(...reasons);
}
