// The store's runs, and two to eight of them side by side.
"use strict";
Relay.most = 8;
Relay.panels = {};

Relay.runName = (row) => (Relay.manyProjects ? `${row.project}/${row.run}` : row.run);

Relay.showBoard = (data) => {
  Relay.data = data;
  Relay.received = performance.now();
  Relay.manyProjects = new Set([...data.runs, ...data.sides].map((row) => row.project)).size > 1;
  document.getElementById("run").textContent = data.title;
  document.getElementById("project").textContent = data.store;
  document.getElementById("foot").textContent = `As of ${Relay.when(data.now)}. Times are in your time zone.`;
  Relay.fill("notices", ...data.notices.map((line) => Relay.el("p", { class: "notice" }, line)));
  Relay.drawPanel("runs", Relay.drawRuns);
  Relay.drawSides();
};

Relay.chosen = new Set();

Relay.drawRuns = () => {
  const { runs } = Relay.data, live = document.documentElement.dataset.mode === "live";
  document.querySelector("section[aria-labelledby=h-runs]").hidden = !runs.length && !live;
  if (!runs.length) { Relay.fill("runs", Relay.el("p", {}, "This store holds no run yet.")); return; }
  const pick = (row) => {
    const key = `${row.project}/${row.run}`;
    const box = Relay.el("input", { type: "checkbox", "aria-label": `Compare ${Relay.runName(row)}`, disabled: row.state === "unreadable" });
    box.checked = Relay.chosen.has(key);
    box.addEventListener("change", () => {
      if (box.checked && Relay.chosen.size >= Relay.most) { box.checked = false; Relay.say(`At most ${Relay.most} runs are shown side by side.`); return; }
      if (box.checked) Relay.chosen.add(key); else Relay.chosen.delete(key);
      Relay.ask();
    });
    return box;
  };
  const named = (row) => (live && row.state !== "unreadable" ? Relay.el("a", { href: `run/${row.project}/${row.run}/` }, Relay.runName(row)) : Relay.runName(row));
  Relay.fill("runs", Relay.table("runs-all", live ? "All runs of the store; mark two to eight to compare them" : "Runs", [
    ["run", named],
    ...(live ? [["compare", pick]] : []),
    ["state", (row) => Relay.el("span", { class: `chip ${row.state}` }, row.state)],
    ["progress", (row) => [Relay.el("progress", { max: "1", value: row.target ? Math.min(1, row.step / row.target) : 0, "aria-label": `Progress of ${Relay.runName(row)}` }),
      Relay.el("span", { class: "quiet" }, `${Relay.int(row.step)}${row.target ? ` of ${Relay.int(row.target)}` : ""}`)]],
    ["best", (row) => row.best ? `${row.best.text} at step ${Relay.int(row.best.step)}` : Relay.unknown],
    ["last session", (row) => (row.last === null ? "none yet" : Relay.ago(row.last))],
    ["who", (row) => row.who ?? "no session"],
    ["sessions", (row) => Relay.int(row.sessions), true],
    ["hours", (row) => Relay.number(row.hours), true],
  ], runs, 50));
};

Relay.ask = async () => {
  if (Relay.chosen.size < 2) { Relay.data.sides = []; Relay.drawSides(); return; }
  const asked = [...Relay.chosen], query = asked.map((name) => `run=${encodeURIComponent(name)}`).join("&");
  try {
    const answer = await fetch(`compare.json?${query}`, { cache: "no-store" });
    const found = await answer.json();
    if (asked.join() !== [...Relay.chosen].join()) return;
    if (!answer.ok) { Relay.say(found.error); return; }
    Object.assign(Relay.data, { sides: found.sides, differences: found.differences, same: found.same });
    Relay.say(`${asked.length} runs side by side.`);
    Relay.drawSides();
  } catch {
    Relay.say("The dashboard's server does not answer.");
  }
};

Relay.drawSides = () => {
  const { sides } = Relay.data;
  document.getElementById("compared").hidden = !sides.length;
  if (!sides.length) return;
  Relay.drawPanel("sides", () => Relay.fill("sides", Relay.sideTable()));
  Relay.drawPanel("settings", () => Relay.fill("settings", ...Relay.differences()));
  Relay.again();
};

Relay.again = () => { if (Relay.data.sides.length) Relay.drawPanel("curves", Relay.drawCurves); };

Relay.sideTable = () => Relay.table("sides-all", "Progress and cost", [
  ["run", (row) => [Relay.el("span", { class: `swatch run-${Relay.data.sides.indexOf(row)}`, "aria-hidden": "true" }), Relay.runName(row)]],
  ["state", (row) => Relay.el("span", { class: `chip ${row.state}` }, row.state)],
  ["steps", (row) => `${Relay.int(row.step)} of ${Relay.int(row.target)}`, true],
  ["best", (row) => row.best ? `${row.best.text} at step ${Relay.int(row.best.step)}` : Relay.unknown],
  ["sessions", (row) => Relay.int(row.sessions), true],
  ["hours", (row) => Relay.number(row.hours), true],
  ["accounts", (row) => Relay.int(row.accounts), true],
  ["GPUs", (row) => row.gpus.join(", ") || Relay.unknown],
], Relay.data.sides, 8);

Relay.differences = () => {
  const { sides, differences, same } = Relay.data;
  if (!differences.length) return [Relay.el("p", {}, `${Relay.counted(same, "setting")}, all equal.`)];
  return [
    Relay.table("differences", "Settings that differ", [
      ["setting", (row) => row.key],
      ...sides.map((side, place) => [Relay.runName(side), (row) => row.values[place] ?? "–"]),
    ], differences, 100),
    Relay.el("p", { class: "quiet" }, `${Relay.counted(same, "other setting")} equal.`),
  ];
};

// One chart for each metric, one line for each run that has it.
Relay.drawCurves = () => {
  const { sides } = Relay.data, { axis } = Relay.state, charts = new Map();
  sides.forEach((side, place) => side.curves.series.forEach((one, column) => {
    const key = one.name;
    const form = { accuracy: "share", rate: "rate", busy: "share", memory: "gigabytes", power: "watts", heat: "degrees" }[one.group] ?? "number";
    if (!charts.has(key)) charts.set(key, { key, title: one.title, form, parts: [] });
    charts.get(key).parts.push({ x: side.curves.line[axis], lines: [{ title: Relay.runName(side), hue: `--run-${place}`, dashed: false, values: side.curves.line.values[column] }] });
  }));
  const found = [...charts.values()].map((chart) => ({ ...chart, parts: chart.parts.filter((part) => part.x.length) })).filter((chart) => chart.parts.length);
  document.getElementById("finding").hidden = found.length < 7;
  Relay.drawCharts(document.getElementById("curves"), found);
  document.getElementById("reading").textContent = Relay.hint();
};

Relay.hint = () => "Drag to zoom in, double-click to zoom out. The names under a chart show and hide its runs.";
Relay.place = (at) => Relay.where(at);

Relay.colour(Relay.remembered());
Relay.showBoard(JSON.parse(document.getElementById("data").textContent));
Relay.curveControls();
Relay.themes();
if (document.documentElement.dataset.mode === "live") {
  Relay.say("Mark runs to compare them. Loading the page again reads the store again.");
} else {
  Relay.say(`Snapshot of ${Relay.when(Relay.data.now)}. It does not change.`);
}
document.documentElement.dataset.drawn = "yes";
