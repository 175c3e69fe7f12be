// Draws the timeline and the columns as SVG, the curves with uPlot; each has a table with the same data.
"use strict";
Relay.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// One lane for each account, one bar for each session.
Relay.lanes = (rows, width) => {
  const given = new Map();
  for (const row of rows) given.set(row.account, (given.get(row.account) ?? 0) + row.seconds);
  const accounts = [...given.keys()].sort((a, b) => given.get(b) - given.get(a) || (a < b ? -1 : 1));
  const shown = accounts.slice(0, 40).sort();
  const narrow = width < 560;
  const left = narrow ? 4 : 150, lane = narrow ? 38 : 28, foot = 26;
  const from = Math.min(...rows.map((row) => row.started));
  const to = Math.max(...rows.map((row) => row.started + row.seconds), from + 60);
  const x = (moment) => left + (width - left - 8) * (moment - from) / (to - from);
  const height = shown.length * lane + foot;
  const picture = Relay.svg("svg", { class: "lanes", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${rows.length} sessions of ${accounts.length} accounts from ${Relay.when(from)} to ${Relay.when(to)}; the table below tells each.` });
  // As many ticks as fit, at least a minute apart, because their labels show minutes.
  const ticks = Math.max(1, Math.min(6, Math.floor((width - left) / 130), Math.floor((to - from) / 60)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const moment = from + (to - from) * tick / ticks;
    const anchor = tick === 0 ? "start" : tick === ticks ? "end" : "middle";
    picture.append(
      Relay.svg("line", { x1: x(moment), x2: x(moment), y1: 0, y2: height - foot, class: "grid" }),
      Relay.svg("text", { x: x(moment), y: height - 8, "text-anchor": anchor, class: "tick" }, Relay.when(moment, to - from > 5 * 86400)));
  }
  shown.forEach((account, place) => {
    const name = Relay.label(account);
    const cut = narrow ? 44 : 20;
    picture.append(Relay.svg("text", { x: 0, y: place * lane + (narrow ? 12 : 17), class: "name" }, name.length > cut ? `${name.slice(0, cut - 1)}…` : name));
  });
  for (const row of rows) {
    const place = shown.indexOf(row.account);
    if (place < 0) continue;
    const whole = !["killed", "fenced", "failed"].includes(row.kind);
    const top = place * lane + (narrow ? 17 : 5), high = 16;
    const wide = Math.max(4, x(row.started + row.seconds) - x(row.started));
    const text = `Session ${row.epoch}, ${Relay.label(row.account)}, ${Relay.when(row.started)}, ${Relay.duration(row.seconds)}, steps ${Relay.int(row.from_step)} to ${Relay.int(row.to_step)}: ${Relay.words[row.kind]}`;
    picture.append(Relay.svg("rect", { x: x(row.started), y: whole ? top : top + high / 2, width: wide, height: whole ? high : high / 2, rx: 2, class: `end-${row.kind}` },
      Relay.svg("title", {}, text)));
  }
  const rest = accounts.length - shown.length;
  return rest > 0 ? Relay.el("div", {}, picture, Relay.el("p", { class: "quiet" }, `${rest} more accounts are in the table.`)) : picture;
};

// Three to six evenly spaced numbers from 0, none beyond the largest value.
Relay.marks = (most) => {
  const ten = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((each) => each * ten).find((each) => most / each < 5);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, place) => Number((place * step).toPrecision(6)));
};

// Steps per hour of the newest sessions, one color for each GPU.
Relay.columns = (data, width) => {
  const rows = data.sessions.filter((row) => row.steps_per_hour !== null).slice(-Math.max(20, Math.floor(width / 9)));
  if (!rows.length) return Relay.el("p", {}, "No session has gained a step yet.");
  const kinds = data.gpus.map((gpu) => gpu.name);
  const colour = (gpu) => `gpu-${Math.max(0, kinds.indexOf(gpu)) % 6}`;
  const height = 150, foot = 20, left = 52;
  const most = Math.max(...rows.map((row) => row.steps_per_hour));
  const step = (width - left) / rows.length, broad = Math.min(40, Math.max(1, step - 2));
  const y = (value) => (height - foot) - (height - foot - 12) * value / most;
  const picture = Relay.svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `Steps per hour of the newest ${rows.length} sessions, up to ${Relay.int(most)}; the table of sessions lists each.` });
  for (const mark of Relay.marks(most)) {
    picture.append(Relay.svg("line", { x1: left, x2: width, y1: y(mark), y2: y(mark), class: "grid" }),
      Relay.svg("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end", class: "tick" }, Relay.number(mark)));
  }
  rows.forEach((row, place) => {
    picture.append(Relay.svg("rect", { x: left + place * step, y: y(row.steps_per_hour), width: broad, height: height - foot - y(row.steps_per_hour), class: colour(row.gpu) },
      Relay.svg("title", {}, `Session ${row.epoch}, ${Relay.label(row.account)}, ${row.gpu ?? "GPU unknown"}: ${Relay.int(row.steps_per_hour)} steps/h`)));
  });
  const named = (row, x, anchor) => picture.append(
    Relay.svg("text", { x, y: height - 4, "text-anchor": anchor, class: "tick" }, `session ${row.epoch}`));
  named(rows[0], left, "start");
  if (rows.length > 1) named(rows[rows.length - 1], left + (rows.length - 1) * step + broad, "end");
  const present = [...new Set(rows.map((row) => row.gpu))];
  return Relay.el("figure", {}, Relay.el("figcaption", {}, "Steps per hour, by session"), picture,
    Relay.legend(present.map((gpu) => [colour(gpu), gpu ?? "GPU unknown"])));
};

Relay.groups = { loss: "Loss", accuracy: "Accuracy", rate: "Learning rate", other: "Other numbers" };
Relay.axes = { step: "step", time: "time", hours: "hours of lease" };
Relay.plots = new Map();

// All curves; an existing plot is updated with the new numbers if possible.
Relay.drawCurves = (data) => {
  const place = document.getElementById("curves");
  const { series, line, redone } = data.curves;
  const key = JSON.stringify([series, Relay.state.axis, Relay.theme()]);
  if (!line.step.length && !redone.step.length) {
    Relay.forget();
    place.replaceChildren(Relay.el("p", {}, "No commit has recorded a number yet."));
    return;
  }
  if (Relay.plots.key !== key) {
    Relay.forget();
    Relay.plots.key = key;
    const groups = Object.keys(Relay.groups).filter((group) => series.some((one) => one.group === group));
    place.replaceChildren(...groups.map((group) => Relay.figure(group, data)), Relay.el("p", { class: "quiet", id: "reading" }));
  }
  for (const [group, drawn] of Relay.plots) {
    drawn.update(Relay.aligned(group, data), data);
  }
  const unread = data.unread ? `${Relay.int(data.unread)} older entries and reports are still being read. ` : "";
  const twice = redone.step.length ? "Hollow points were trained again after damage; the line leaves them out. " : "";
  document.getElementById("reading").textContent = `${unread}${twice}Vertical lines are hand-offs. Drag to zoom in, double-click to zoom out.`;
};

Relay.forget = () => {
  for (const drawn of Relay.plots.values()) drawn.destroy();
  Relay.plots.clear();
  Relay.plots.key = "";
};

Relay.members = (group, data) => data.curves.series.map((one, place) => ({ ...one, place })).filter((one) => one.group === group);

Relay.aligned = (group, data) => {
  const table = (side) => [side[Relay.state.axis], ...Relay.members(group, data).map((one) => side.values[one.place])];
  return uPlot.join([table(data.curves.line), table(data.curves.redone)]);
};

Relay.figure = (group, data) => {
  const members = Relay.members(group, data);
  const holder = Relay.el("div", { class: "plot", role: "img" });
  const readout = Relay.el("p", { class: "readout", "aria-hidden": "true" });
  const alternative = Relay.details(`table-${group}`, `${Relay.groups[group]} as a table`, () => Relay.curveTable(group, Relay.data));
  const figure = Relay.el("figure", {}, Relay.el("figcaption", {}, Relay.groups[group]), holder,
    Relay.legend(members.map((one, place) => [`series-${place % 4}`, place < 4 ? one.title : `${one.title} (dashed)`])), readout, alternative);
  const drawn = { plot: null, sessions: data.sessions };
  drawn.update = (rows, fresh) => {
    drawn.sessions = fresh.sessions;
    holder.setAttribute("aria-label", Relay.told(group, fresh));
    if (drawn.plot) {
      const zoomed = drawn.zoomed;
      drawn.plot.setData(rows, !zoomed);
      return;
    }
    drawn.plot = new uPlot(Relay.options(group, members, drawn, holder, readout), rows, holder);
    drawn.watch = new ResizeObserver(() => drawn.plot.setSize({ width: Math.max(200, holder.clientWidth), height: 230 }));
    drawn.watch.observe(holder);
  };
  drawn.destroy = () => {
    drawn.watch?.disconnect();
    drawn.plot?.destroy();
  };
  Relay.plots.set(group, drawn);
  return figure;
};

Relay.options = (group, members, drawn, holder, readout) => {
  const ink = Relay.css("--quiet"), rule = Relay.css("--rule"), paper = Relay.css("--card");
  const stroke = (place) => Relay.css(`--series-${place % 4}`);
  const value = (number) => (number === null || number === undefined ? "" : group === "accuracy" ? Relay.share(number) : Relay.number(number));
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: ink, font, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
  return {
    width: Math.max(200, holder.clientWidth), height: 230, legend: { show: false }, padding: [8, 24, 0, 0],
    scales: { x: { time: Relay.state.axis === "time" } },
    axes: [
      { ...axis, ...(Relay.state.axis === "time" ? {} : { size: 30, values: (_, marks) => marks.map((mark) => mark.toLocaleString("en")) }) },
      { ...axis, size: 62, values: (_, marks) => marks.map((mark) => (group === "accuracy" ? `${Number((100 * mark).toPrecision(6))} %` : group === "rate" && mark ? mark.toExponential(1) : Relay.number(mark))) },
    ],
    series: [
      {},
      ...members.map((one, place) => ({ label: one.title, stroke: stroke(place), width: 1.6, spanGaps: true, dash: place < 4 ? [] : [6, 4], points: { size: 4, show: Relay.apart } })),
      ...members.map((one, place) => ({ label: `${one.title}, trained again`, stroke: stroke(place), paths: () => null,
        points: { show: true, size: 7, width: 1.5, stroke: stroke(place), fill: paper } })),
    ],
    hooks: {
      drawClear: [(plot) => Relay.handoffLines(plot, drawn.sessions)],
      setSelect: [(plot) => { drawn.zoomed = plot.select.width > 0; }],
      setCursor: [(plot) => {
        const place = plot.cursor.idx;
        const at = place === null || place === undefined ? null : plot.data[0][place];
        if (at === null) { readout.textContent = ""; return; }
        const parts = members.map((one, number) => [one.title, plot.data[number + 1][place] ?? plot.data[number + 1 + members.length][place]]);
        const where = Relay.state.axis === "time" ? Relay.when(at) : `${Relay.axes[Relay.state.axis]} ${Relay.number(at)}`;
        readout.textContent = `${where}: ${parts.filter(([, n]) => n !== null && n !== undefined).map(([name, n]) => `${name} ${value(n)}`).join(", ")}`;
      }],
      ready: [(plot) => plot.over.addEventListener("dblclick", () => { drawn.zoomed = false; })],
    },
  };
};

// Whether a curve's own values lie far enough apart for a dot each: uPlot counts those of all curves, and shows no lone value.
Relay.apart = (plot, place, first, last) =>
  16 * plot.data[place].slice(first, last + 1).filter((value) => value !== null && value !== undefined).length < plot.over.clientWidth;

Relay.handoffLines = (plot, sessions) => {
  const field = { step: "from_step", time: "started", hours: "hours" }[Relay.state.axis];
  const context = plot.ctx;
  context.save();
  context.beginPath();
  context.strokeStyle = Relay.css("--handoff");
  context.lineWidth = 1;
  context.globalAlpha = sessions.length > 120 ? 0.35 : 0.8;
  for (const row of sessions.slice(1)) {
    const across = Math.round(plot.valToPos(row[field], "x", true)) + 0.5;
    if (across < plot.bbox.left || across > plot.bbox.left + plot.bbox.width) continue;
    context.moveTo(across, plot.bbox.top);
    context.lineTo(across, plot.bbox.top + plot.bbox.height);
  }
  context.stroke();
  context.restore();
};

Relay.told = (group, data) => {
  const line = data.curves.line;
  const parts = Relay.members(group, data).map((one) => {
    const known = line.values[one.place].filter((value) => value !== null);
    return known.length ? `${one.title} from ${Relay.number(known[0])} to ${Relay.number(known[known.length - 1])}` : `${one.title} ${Relay.unknown}`;
  });
  const again = data.curves.redone.step.length;
  return `${Relay.groups[group]} over ${Relay.axes[Relay.state.axis]}: ${parts.join("; ")}${again ? `; ${again} commits were trained again` : ""}. The table below has the numbers.`;
};

Relay.curveTable = (group, data) => {
  const line = data.curves.line, count = line.step.length;
  const places = [...new Set(Array.from({ length: Math.min(count, 40) }, (_, i) => Math.round(i * (count - 1) / Math.max(1, Math.min(count, 40) - 1))))];
  return Relay.table(`rows-${group}`, `${Relay.groups[group]} at up to forty commits`, [
    ["step", (at) => Relay.int(line.step[at])],
    ["when", (at) => Relay.time(line.time[at])],
    ["hours", (at) => Relay.number(line.hours[at]), true],
    ...Relay.members(group, data).map((one) => [one.title, (at) => Relay.number(line.values[one.place][at]), true]),
  ], places, 40);
};
