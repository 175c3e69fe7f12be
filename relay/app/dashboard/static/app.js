// Draws the page, updates it and handles its controls. Asks only the server that it came from.
"use strict";
Relay.panelNames = ["overview", "timeline", "pace", "machine", "people", "settings", "storage", "handoffs", "incidents"];

Relay.draw = (names = Relay.panelNames) => {
  for (const name of names) Relay.drawPanel(name, () => Relay.fill(name, ...Relay.panels[name](Relay.data)));
};

Relay.show = (data) => {
  Relay.data = data;
  Relay.received = performance.now();
  Relay.names = new Map(data.accounts.map((row) => [row.id, row.label]));
  document.getElementById("run").textContent = data.run;
  document.getElementById("project").textContent = data.project;
  document.getElementById("foot").textContent =
    `As of ${Relay.when(data.now)} by the clock of ${data.clock === "store" ? "the store" : data.clock}. Times are in your time zone.`;
  Relay.fill("notices", ...data.notices.map((line) => Relay.el("p", { class: "notice" }, line)),
    data.trouble ? Relay.el("p", { class: "notice" }, `Not the newest: ${data.trouble}`) : null);
  Relay.choices("who", [...new Set(data.sessions.map((row) => row.account))].sort(), Relay.label);
  Relay.choices("end", [...new Set(data.sessions.map((row) => row.kind))], (kind) => Relay.words[kind]);
  Relay.draw();
  Relay.again();
  Relay.drawPanel("session", Relay.showSession);
};

Relay.again = () => Relay.drawPanel("curves", () => Relay.drawCurves(Relay.data));

// Replaces the options after the first, only if they changed.
Relay.choices = (id, values, word) => {
  const select = document.getElementById(id);
  const known = [...select.options].slice(1).map((option) => option.value);
  if (known.join("\n") === values.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...values.map((value) => Relay.el("option", { value }, word(value))));
  select.value = values.includes(chosen) ? chosen : "";
  Relay.state[id] = select.value;
};

Relay.controls = () => {
  for (const id of ["who", "end", "range"]) {
    document.getElementById(id).addEventListener("change", (event) => {
      Relay.state[id] = event.target.value;
      Relay.draw(["timeline"]);
    });
  }
  Relay.curveControls();
  addEventListener("hashchange", () => {
    const shown = Relay.showSession();
    shown?.scrollIntoView({ block: "nearest" });
    document.getElementById("h-session")?.focus({ preventScroll: true });
  });
  Relay.themes();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    Relay.draw(["timeline", "pace"]);
  });
  setInterval(() => {
    for (const span of document.querySelectorAll("[data-since]")) span.textContent = `${Relay.duration(Relay.now() - Number(span.dataset.since))} ago`;
  }, 5000);
};

Relay.listen = () => {
  const source = new EventSource("events");
  let fetching = false, missed = false;
  const refresh = async () => {
    if (fetching) { missed = true; return; }
    fetching = true;
    try {
      const answer = await fetch("data.json", { cache: "no-store" });
      const data = await answer.json();
      const before = Relay.data.header.step;
      Relay.show(data);
      Relay.say(data.trouble ? "The store does not answer; the page shows the last data."
        : data.header.step === before ? "Live: follows the run." : `Live: step ${Relay.int(data.header.step)} is committed.`);
    } catch {
      Relay.say("The dashboard's server does not answer. Retrying.");
    }
    fetching = false;
    if (missed) { missed = false; refresh(); }
  };
  source.addEventListener("news", refresh);
  source.addEventListener("error", () => Relay.say("The dashboard's server does not answer. Retrying."));
};

Relay.colour(Relay.remembered());
Relay.show(JSON.parse(document.getElementById("data").textContent));
Relay.controls();
if (document.documentElement.dataset.mode === "live") Relay.listen();
else Relay.say(`Snapshot of ${Relay.when(Relay.data.now)}. It does not change.`);
document.documentElement.dataset.drawn = "yes";
