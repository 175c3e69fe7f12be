// What both pages share: the theme, the controls above the curves, and the line for screen readers.
"use strict";
Relay.theme = () => document.documentElement.dataset.theme
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

// A panel that cannot be drawn shows an error; the other panels still work.
Relay.drawPanel = (name, draw) => {
  try {
    draw();
  } catch {
    Relay.fill(name, Relay.el("p", { class: "notice" }, "This part could not be drawn. `report` in a terminal shows it."));
  }
};

// The controls above the curves, on every page that has curves.
Relay.curveControls = () => {
  const on = (id, event, act) => document.getElementById(id).addEventListener(event, (happened) => act(happened.target));
  on("axis", "change", (box) => { Relay.state.axis = box.value; Relay.state.zoom = null; Relay.again(); });
  on("log", "change", (box) => { Relay.state.log = box.checked; Relay.again(); });
  on("smooth", "input", (box) => {
    Relay.state.smooth = Number(box.value);
    document.getElementById("smoothed").textContent = box.value;
    Relay.again();
  });
  on("window", "change", (box) => { Relay.zoomTo(Number(box.value)); });
  on("unzoom", "click", () => { document.getElementById("window").value = "1"; Relay.zoomTo(1); });
  on("find", "input", () => Relay.search());
};

Relay.themes = () => {
  const theme = document.getElementById("theme");
  theme.value = Relay.remembered();
  theme.addEventListener("change", () => {
    Relay.colour(theme.value);
    try { localStorage.setItem("relay-theme", theme.value); } catch { /* a frame without storage does not keep it */ }
    Relay.again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Relay.again);
};

Relay.remembered = () => {
  try {
    const found = localStorage.getItem("relay-theme");
    return ["light", "dark"].includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
};

Relay.colour = (choice) => {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
};

// The line for screen readers: only changes.
Relay.say = (text) => {
  const line = document.getElementById("live");
  if (line.textContent !== text) line.textContent = text;
};
