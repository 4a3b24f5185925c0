// A short message at the bottom of the page. Its length and its time are bounded: texts of files may be in it.
"use strict";

const TOAST = { length: 300, least: 3000, perCharacter: 60, most: 15_000 }; // characters, milliseconds

const shorten = (text, length) => {
  const characters = Array.from(String(text).slice(0, 4 * length));
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : characters.join("");
};

// Name a few of some ids, and count the others.
function nameSome(ids) {
  const more = ids.length > 3 ? ` and ${(ids.length - 3).toLocaleString("en")} more` : "";
  return ids.slice(0, 3).map((id) => shorten(id, 40)).join(", ") + more;
}

function say(message) {
  const toast = byName("toast");
  toast.textContent = shorten(message, TOAST.length);
  toast.hidden = false;
  toast.onclick = () => {
    toast.hidden = true;
  };
  clearTimeout(say.timer);
  const time = Math.min(TOAST.most, TOAST.least + TOAST.perCharacter * toast.textContent.length);
  say.timer = setTimeout(toast.onclick, time);
}
