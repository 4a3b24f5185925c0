// The buttons of the sound, and the comment on a decision.
"use strict";

class Controls {
  // detail: what shows the utterance (detail.js). listening: what plays it (listening.js).
  constructor(detail, listening) {
    this.detail = detail;
    this.listening = listening;
    const button = (title, onclick, text = "") => make("button", { title, onclick }, text);
    this.speed = button("Playing speed (r)", () => listening.changeSpeed());
    this.loop = button("Play again and again (l)", () => listening.changeLoop(), "Loop");
    this.auto = button("What is played when an utterance is chosen (p)", () => listening.changeAutoplay());
    this.spectrogram = button("Show the spectrogram (g)", () => detail.changeView("spectrogram"), "Spectrogram");
    this.level = button("Show the true level, not that of the loudest sound (v)", () => detail.changeView("level"), "Level");
    const zoom = (sign, factor, title) =>
      make("button", { title, "aria-label": title, onclick: () => detail.wave.zoomBy(factor) }, sign);
    const zooms = [zoom("−", 1 / 1.5, "Zoom out (-)"), zoom("+", 1.5, "Zoom in (+)")];
    this.buttons = [this.speed, this.loop, this.auto, this.spectrogram, this.level, ...zooms];
    this.show();
  }

  show() {
    const { player, auto } = this.listening;
    this.speed.textContent = `${player.audio.playbackRate}×`;
    this.auto.textContent = `Autoplay: ${AUTOPLAYS[auto]}`;
    const pressed = [
      [this.loop, player.loop],
      [this.auto, auto !== "off"],
      [this.spectrogram, this.detail.wave.view.spectrogram],
      [this.level, this.detail.wave.view.level],
    ];
    for (const [button, on] of pressed) button.setAttribute("aria-pressed", String(on));
  }
}

// A comment on the decision: stored with it, and with later ones on the same utterance.
class Comment {
  constructor(save, leave) {
    this.field = make("input", {
      type: "text",
      class: "comment",
      placeholder: "Comment   c",
      "aria-label": "Comment on the decision",
      maxlength: "500",
      dir: "auto",
      autocomplete: "off",
    });
    this.element = this.field;
    this.field.addEventListener("change", () => save(this.field.value.trim()));
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") leave(this.field.blur());
    });
  }

  focus() {
    this.field.focus();
  }

  show(made) {
    if (document.activeElement !== this.field) this.field.value = made?.comment ?? "";
  }
}

function legend() {
  const steps = Array.from({ length: 10 }, (_, level) => make("i", { class: `shade-${level}` }));
  return make(
    "span",
    { class: "legend", title: "Probability that a character (shade) or word (bar below it) was not said" },
    "not said: 0 ",
    ...steps,
    " 1",
  );
}
