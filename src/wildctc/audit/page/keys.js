// Which key was pressed, on any keyboard, and the switch that turns single-key shortcuts off.
"use strict";

const KEYS_OFF = "wildctc-audit-keys-off";

// The name of a key in the tables of shortcuts. Letters are found with Caps Lock too; where the layout has no Latin
// letters, by their place on the keyboard. Capitals are for the Shift key.
function keyName(event) {
  const { key, code, shiftKey } = event;
  const digit = digitOf(event);
  if (digit !== null && !shiftKey) return String(digit);
  if (/^[a-z]$/i.test(key)) return shiftKey ? key.toUpperCase() : key.toLowerCase();
  const foreign = key.length === 1 ? key > "\x7f" : ["Dead", "Process", "Unidentified"].includes(key);
  if (foreign && /^Key[A-Z]$/.test(code)) return shiftKey ? code[3] : code[3].toLowerCase();
  if (foreign && code === "Slash") return shiftKey ? "?" : "/";
  return key;
}

// 1 to 9, or null. With Alt, and on French keyboards, the key itself is another character.
function digitOf({ key, code }) {
  if (/^[1-9]$/.test(key)) return Number(key);
  return /^Digit[1-9]$/.test(code) && !/^[a-z0]$/i.test(key) ? Number(code[5]) : null;
}

const isCharacter = (event) => Array.from(event.key).length === 1 || ["Dead", "Process"].includes(event.key);

// The switch in the help. Characters then do nothing; arrows, Enter and Esc do not change.
class Shortcuts {
  constructor() {
    this.box = byName("shortcuts");
    try {
      this.box.checked = localStorage.getItem(KEYS_OFF) === null;
    } catch {
      this.box.checked = true;
    }
    this.box.onchange = () => this.change();
    this.show();
  }

  get on() {
    return this.box.checked;
  }

  change() {
    try {
      if (this.on) localStorage.removeItem(KEYS_OFF);
      else localStorage.setItem(KEYS_OFF, "1");
    } catch {
      // it then holds until the page is closed
    }
    this.show();
  }

  show() {
    document.body.classList.toggle("keys-off", !this.on);
  }
}
