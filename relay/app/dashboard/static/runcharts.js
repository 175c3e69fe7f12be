// The charts of one run: one line through everybody's sessions, with the strip of who trained which part.
"use strict";
Relay.groups = {
  loss: ["Loss", "number"], accuracy: ["Accuracy", "share"], rate: ["Learning rate", "rate"],
  busy: ["GPU busy", "share"], memory: ["Memory", "gigabytes"], power: ["Power", "watts"], heat: ["Temperature", "degrees"],
};
Relay.ofMachine = ["busy", "memory", "power", "heat"];
Relay.people = 6;

// The accounts that trained longest have a color, in the order of their first session, as in the files of `plot`.
Relay.colored = (data) => {
  const given = new Map();
  for (const row of data.sessions) given.set(row.account, (given.get(row.account) ?? 0) + row.seconds);
  const kept = new Set([...given.keys()].sort((a, b) => given.get(b) - given.get(a)).slice(0, Relay.people));
  return [...given.keys()].filter((account) => kept.has(account));
};

// Who trained which part of the line; over time, the sessions themselves, so that gaps show.
Relay.owners = (data) => {
  const colored = Relay.colored(data), { axis } = Relay.state;
  const whose = new Map(data.sessions.map((row) => [row.epoch, row.account]));
  const who = (account) => (colored.includes(account) ? colored.indexOf(account) : null);
  if (axis === "time") return data.sessions.map((row) => ({ from: row.started, to: row.started + row.seconds, who: who(row.account) }));
  const { line } = data.curves, found = [];
  line.epoch.forEach((epoch, place) => {
    const at = line[axis][place], last = found[found.length - 1], account = whose.get(epoch);
    if (last && last.account === account) last.to = at;
    else found.push({ account, who: who(account), from: last ? last.to : 0, to: at });
  });
  return found;
};

// Notes and incidents with their place on every axis.
Relay.flagsOf = (data) => {
  const rows = new Map(data.sessions.map((row) => [row.epoch, row]));
  const flag = (kind) => (one) => {
    const row = rows.get(one.epoch);
    const text = kind === "note" ? `note: ${one.text ?? "left out here"}` : `${one.cause}: ${one.text}`;
    return { kind, text, step: one.step, time: one.at, hours: row ? row.hours + Math.max(0, one.at - row.started) / 3600 : null };
  };
  return [...data.notes.map(flag("note")), ...data.incidents.filter((one) => one.cause !== "note").map(flag("incident"))];
};

Relay.charts = (data) => {
  const { series, line, redone } = data.curves, { axis } = Relay.state;
  const owners = Relay.owners(data), flags = Relay.flagsOf(data), found = new Map();
  series.forEach((one, place) => {
    const key = one.group === "other" ? `other-${one.name}` : one.group;
    const [title, form] = Relay.groups[one.group] ?? [one.title, "number"];
    if (!found.has(key)) found.set(key, { key, title, form, group: one.group, places: [], owners, flags });
    found.get(key).places.push(place);
  });
  const order = [...Object.keys(Relay.groups).slice(0, 3), "other", ...Relay.ofMachine];
  return [...found.values()].sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group)).map(({ places, ...chart }) => {
    const lines = (side) => places.map((place, number) => ({ title: series[place].title, hue: `--series-${number % 4}`, dashed: number % 8 > 3, values: side.values[place] }));
    const again = redone.step.length && !Relay.ofMachine.includes(chart.group) ? [{ x: redone[axis], again: true, lines: lines(redone) }] : [];
    return { ...chart, parts: [{ x: line[axis], lines: lines(line) }, ...again] };
  });
};

Relay.drawCurves = (data) => {
  const place = document.getElementById("curves"), machine = document.getElementById("machine-curves");
  if (!data.curves.line.step.length && !data.curves.redone.step.length) {
    place.replaceChildren(Relay.el("p", {}, "No commit has recorded a number yet."));
    return;
  }
  const charts = Relay.charts(data), ofMachine = (chart) => Relay.ofMachine.includes(chart.group);
  Relay.drawCharts(place, charts.filter((chart) => !ofMachine(chart)));
  Relay.drawCharts(machine, charts.filter(ofMachine));
  const lines = charts.reduce((sum, chart) => sum + (ofMachine(chart) ? 0 : chart.parts[0].lines.length), 0);
  document.getElementById("finding").hidden = lines < 7;
  const colored = Relay.colored(data), rest = new Set(data.sessions.map((row) => row.account)).size - colored.length;
  Relay.fill("owners", Relay.legend([
    ...colored.map((account, place) => [`who-${place}`, `${place + 1}  ${Relay.label(account)}`]), ...(rest > 0 ? [["who-rest", Relay.counted(rest, "more account")]] : [])]));
  document.getElementById("reading").textContent = Relay.hint();
};

Relay.hint = () => {
  const { unread, curves } = Relay.data;
  const older = unread ? `${Relay.int(unread)} older entries and reports are still being read. ` : "";
  const twice = curves.redone.step.length ? "Hollow points were trained again after damage; the line leaves them out. " : "";
  return `${older}${twice}Drag to zoom in, double-click to zoom out. The strip under a curve shows who trained which part.`;
};

// The commit at the cursor, in words.
Relay.place = (at, plot) => {
  const { line, redone } = Relay.data.curves, { axis } = Relay.state;
  const side = line[axis].includes(at) ? line : redone, place = side[axis].indexOf(at);
  if (place < 0) return Relay.where(at);
  const row = Relay.data.sessions.find((one) => one.epoch === side.epoch[place]);
  const near = plot ? Math.abs(plot.posToVal(8, "x") - plot.posToVal(0, "x")) : 0;
  const flags = Relay.flagsOf(Relay.data).filter((flag) => Math.abs(flag[axis] - at) <= near).slice(0, 3).map((flag) => flag.text);
  return [`step ${Relay.int(side.step[place])}`, Relay.when(side.time[place]), `session ${side.epoch[place]}${row ? ` of ${Relay.label(row.account)}` : ""}`, ...flags].join(" · ");
};
