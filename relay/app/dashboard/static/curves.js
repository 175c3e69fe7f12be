// Draws curves with uPlot: one cursor, one zoom and one legend for what uPlot itself can do.
"use strict";
Relay.axes = { step: "step", time: "time", hours: "hours of lease" };
Relay.plots = new Map();
Relay.sync = "relay";

Relay.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A running mean that forgets by `weight` at each value and is not drawn towards 0 at the beginning.
Relay.smoothed = (values, weight) => {
  let sum = 0, known = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    known = weight * known + (1 - weight);
    return sum / known;
  });
};

// A chart: { key, title, form, parts: [{ x, again, lines: [{ title, hue, dashed, values }] }], owners }.
// The columns of a chart in uPlot's order; a smoothed line is followed, further on, by its raw values.
Relay.tracks = (chart) => chart.parts.flatMap((part) => {
  const main = part.lines.map((line) => ({ line, kind: part.again ? "again" : "main" }));
  const raw = Relay.state.smooth && !part.again ? part.lines.map((line) => ({ line, kind: "raw" })) : [];
  return [...main, ...raw];
});

Relay.rows = (chart) => {
  const { smooth, log } = Relay.state;
  const tables = chart.parts.map((part) => {
    const columns = part.lines.map(({ values }) => (log ? values.map((value) => (value > 0 ? value : null)) : values));
    const even = smooth && !part.again;
    return [part.x, ...(even ? columns.map((column) => Relay.smoothed(column, smooth)) : columns), ...(even ? columns : [])];
  });
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
};

// Draws the charts into a place; those of the same form get only new numbers.
Relay.drawCharts = (place, charts) => {
  const key = JSON.stringify([Relay.state.axis, Relay.state.log, Relay.state.smooth > 0, Relay.theme(),
    charts.map((chart) => [chart.key, chart.title, Relay.tracks(chart).map(({ line, kind }) => [line.title, line.hue, kind])])]);
  if (place.dataset.key !== key) {
    for (const [name, drawn] of Relay.plots) if (drawn.place === place) { drawn.destroy(); Relay.plots.delete(name); }
    place.dataset.key = key;
    place.replaceChildren(...charts.map((chart) => Relay.figure(chart, place)));
  }
  for (const chart of charts) Relay.plots.get(chart.key).update(chart);
  Relay.search();
};

Relay.figure = (chart, place) => {
  const holder = Relay.el("div", { class: "plot", role: "img" });
  const legend = Relay.el("div", { class: "values" });
  const drawn = { chart, place, holder, legend, plot: null };
  const button = (word, title, act) => {
    const made = Relay.el("button", { type: "button", class: "tool", "aria-label": title, title }, word);
    made.addEventListener("click", () => act(made));
    return made;
  };
  const tools = Relay.el("div", { class: "tools" },
    button("Large", `${chart.title}: large`, (made) => {
      const large = drawn.figure.classList.toggle("large");
      made.setAttribute("aria-pressed", String(large));
    }),
    ...Object.entries(Relay.downloads).map(([word, save]) => button(word, `${chart.title}: download as ${word}`, () => save(drawn))));
  drawn.figure = Relay.el("figure", { class: "chart" },
    Relay.el("div", { class: "head" }, Relay.el("figcaption", {}, chart.title), tools), holder, legend,
    Relay.details(`table-${chart.key}`, "As a table", () => Relay.chartTable(drawn.chart)));
  drawn.update = (fresh) => {
    drawn.chart = fresh;
    holder.setAttribute("aria-label", Relay.spoken(fresh));
    const rows = Relay.rows(fresh);
    if (!drawn.plot) {
      drawn.plot = new uPlot(Relay.options(drawn), rows, holder);
      drawn.watch = new ResizeObserver(() => drawn.plot.setSize(Relay.room(holder)));
      drawn.watch.observe(holder);
      if (Relay.state.zoom) drawn.plot.setScale("x", Relay.state.zoom);
    } else if (Relay.state.zoom) {
      drawn.plot.setData(rows, false);
      drawn.plot.setScale("x", Relay.state.zoom);
    } else {
      drawn.plot.setData(rows);
    }
  };
  drawn.destroy = () => {
    drawn.watch?.disconnect();
    drawn.plot?.destroy();
  };
  Relay.plots.set(chart.key, drawn);
  return drawn.figure;
};

Relay.room = (holder) => ({ width: Math.max(200, holder.clientWidth), height: Math.max(150, holder.clientHeight) });

Relay.where = (at) => (Relay.state.axis === "time" ? Relay.when(at) : `${Relay.axes[Relay.state.axis]} ${Relay.number(at)}`);

Relay.options = (drawn) => {
  const { chart, holder, legend } = drawn;
  const { axis, log } = Relay.state, timed = axis === "time";
  const ink = Relay.css("--quiet"), rule = Relay.css("--rule"), paper = Relay.css("--card");
  const font = "12px system-ui, sans-serif";
  const common = { stroke: ink, font, grid: { stroke: rule, width: 1 } };
  const value = Relay.forms[chart.form] ?? Relay.forms.number;
  const tracks = drawn.tracks = Relay.tracks(chart);
  const buttons = new Map();
  const twin = (place) => tracks.findIndex(({ line, kind }) => kind === "again" && line.title === tracks[place].line.title);
  const series = tracks.map(({ line, kind }, place) => {
    const stroke = line.hue.startsWith("--") ? Relay.css(line.hue) : line.hue;
    if (kind === "again") return { class: "companion", stroke, paths: () => null, points: { show: true, size: 7, width: 1.5, stroke, fill: paper } };
    if (kind === "raw") return { class: "companion", stroke, alpha: 0.3, width: 1, spanGaps: true, points: { show: false } };
    const label = Relay.el("button", { type: "button", class: "series", "aria-pressed": "true" }, line.title);
    buttons.set(place + 1, label);
    return { label, stroke, width: 1.6, spanGaps: true, dash: line.dashed ? [6, 4] : [], points: { size: 4, show: Relay.apart },
      value: (plot, number, self, at) => {
        const again = number ?? (at === null ? null : plot.data[twin(place) + 1]?.[at]);
        return again === null || again === undefined ? "–" : value(again);
      } };
  });
  return {
    ...Relay.room(holder), padding: [10, 24, 0, 0],
    legend: { mount: (_, table) => legend.replaceChildren(table), markers: { width: 3, dash: (_, at) => (tracks[at - 1].line.dashed ? "dashed" : "solid") } },
    scales: { x: { time: timed }, y: { distr: log ? 3 : 1 } },
    cursor: { y: false, drag: { x: true, y: false, dist: 4 }, sync: { key: Relay.sync, scales: ["x", null] }, dataIdx: Relay.nearest },
    axes: [
      { ...common, ticks: { show: false }, gap: chart.owners ? 19 : 6, ...(timed ? { size: chart.owners ? 58 : 45 } : { size: chart.owners ? 38 : 25, values: (_, marks) => marks.map((mark) => mark.toLocaleString("en")) }) },
      { ...common, ticks: { stroke: rule, width: 1 }, size: 62, values: (_, marks) => marks.map((mark) => (mark === null ? "" : value(mark, true))) },
    ],
    series: [{ label: Relay.axes[axis] }, ...series],
    hooks: {
      draw: [(plot) => { Relay.strip(plot, chart.owners); Relay.flags(plot, chart.flags ?? []); }],
      setScale: [(plot, key) => { if (key === "x") Relay.zoomed(plot); }],
      setCursor: [(plot) => { if (drawn === Relay.plots.values().next().value) Relay.read(plot); }],
      setSeries: [(plot, at, change) => {
        if (change.show === undefined || !buttons.has(at)) return;
        buttons.get(at).setAttribute("aria-pressed", String(change.show));
        tracks.forEach(({ line, kind }, place) => {
          const with_ = kind !== "main" && line.title === tracks[at - 1].line.title;
          if (with_ && plot.series[place + 1].show !== change.show) plot.setSeries(place + 1, { show: change.show });
        });
      }],
    },
  };
};

Relay.forms = {
  number: (value, axis) => (axis && Math.abs(value) > 0 && Math.abs(value) < 0.001 ? value.toExponential(0) : Relay.number(value)),
  share: (value) => `${Number((100 * value).toPrecision(4))} %`,
  rate: (value) => (value ? value.toExponential(1) : "0"),
  gigabytes: (value) => `${Number(value.toPrecision(3))} GB`,
  watts: (value) => `${Number(value.toPrecision(4))} W`,
  degrees: (value) => `${Number(value.toPrecision(3))} °C`,
};

// Whether a curve's own values lie far enough apart for a dot each: uPlot counts those of all curves, and shows no lone value.
Relay.apart = (plot, place, first, last) =>
  16 * plot.data[place].slice(first, last + 1).filter((value) => value !== null && value !== undefined).length < plot.over.clientWidth;

// The nearest value of a curve to the cursor, within 24 pixels: not every curve has one at every step.
Relay.nearest = (plot, series, at) => {
  const column = plot.data[series];
  if (series === 0 || (column[at] ?? null) !== null) return at;
  const x = plot.data[0], limit = Math.abs(plot.posToVal(24, "x") - plot.posToVal(0, "x"));
  for (let away = 1; ; away += 1) {
    const near = [at - away, at + away].filter((place) => place >= 0 && place < x.length && Math.abs(x[place] - x[at]) <= limit);
    if (!near.length) return at;
    const found = near.find((place) => (column[place] ?? null) !== null);
    if (found !== undefined) return found;
  }
};

Relay.zoomed = (plot) => {
  const { min, max } = plot.scales.x, x = plot.data[0];
  Relay.state.zoom = min === null || (min <= x[0] && max >= x[x.length - 1]) ? null : { min, max };
  const reset = document.getElementById("unzoom");
  if (reset) reset.hidden = !Relay.state.zoom;
};

// Shows the newest part of all curves; 1 is all of it.
Relay.zoomTo = (part) => {
  const ends = [...Relay.plots.values()].map(({ plot }) => plot.data[0]).filter((x) => x.length);
  if (!ends.length) return;
  const first = Math.min(...ends.map((x) => x[0])), last = Math.max(...ends.map((x) => x[x.length - 1]));
  for (const { plot } of Relay.plots.values()) plot.setScale("x", { min: last - part * (last - first), max: last });
};

// The strip under a plot: who trained which part, in the account's color and, where it fits, its number.
Relay.strip = (plot, owners) => {
  if (!owners?.length) return;
  const { ctx, bbox } = plot, ratio = uPlot.pxRatio, top = bbox.top + bbox.height + 4 * ratio, high = 11 * ratio;
  const end = bbox.left + bbox.width;
  ctx.save();
  ctx.font = `bold ${9 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const { from, to, who } of owners) {
    const left = Math.max(bbox.left, plot.valToPos(from, "x", true)), right = Math.min(end, plot.valToPos(to, "x", true));
    if (right <= left && !(left >= bbox.left && left <= end && to >= plot.scales.x.min)) continue;
    const wide = Math.max(ratio, right - left);
    ctx.fillStyle = Relay.css(who === null ? "--who-rest" : `--who-${who}`);
    ctx.fillRect(left, top, wide, high);
    if (who === null || wide < 14 * ratio) continue;
    ctx.fillStyle = Relay.css("--card");
    ctx.fillText(String(who + 1), left + wide / 2, top + high / 2 + 0.5 * ratio);
  }
  ctx.restore();
};

// Small flags on the time axis: notes, and incidents.
Relay.flags = (plot, flags) => {
  const { ctx, bbox } = plot, ratio = uPlot.pxRatio;
  ctx.save();
  for (const flag of flags) {
    const at = plot.valToPos(flag[Relay.state.axis], "x", true);
    if (!(at >= bbox.left && at <= bbox.left + bbox.width)) continue;
    ctx.fillStyle = Relay.css(flag.kind === "note" ? "--accent" : "--end-killed");
    ctx.beginPath();
    ctx.moveTo(at - 4 * ratio, bbox.top - 7 * ratio);
    ctx.lineTo(at + 4 * ratio, bbox.top - 7 * ratio);
    ctx.lineTo(at, bbox.top);
    ctx.fill();
  }
  ctx.restore();
};

// The line above the charts: where the cursor is, whose session that is, and what was noted there.
Relay.read = (plot) => {
  const line = document.getElementById("reading"), at = plot.cursor.idx;
  if (!line) return;
  if (at === null || at === undefined) { line.textContent = Relay.hint(); return; }
  line.textContent = Relay.place(plot.data[0][at], plot);
};

Relay.search = () => {
  const box = document.getElementById("find");
  if (!box) return;
  const wanted = box.value.trim().toLowerCase();
  const has = (text) => text.toLowerCase().includes(wanted);
  let shown = 0;
  for (const { chart, figure, plot, tracks } of Relay.plots.values()) {
    const whole = !wanted || has(chart.title);
    const matches = whole || chart.parts.some((part) => part.lines.some((line) => has(line.title)));
    figure.hidden = !matches;
    shown += matches;
    tracks.forEach(({ line, kind }, place) => {
      const show = whole || has(line.title);
      if (box.dataset.used && kind === "main" && plot.series[place + 1].show !== show) plot.setSeries(place + 1, { show });
    });
  }
  if (wanted) box.dataset.used = "yes"; else delete box.dataset.used;
  const none = document.getElementById("none");
  if (none) none.hidden = shown > 0;
};

Relay.spoken = (chart) => {
  const parts = chart.parts.filter((part) => !part.again).flatMap((part) => part.lines).map(({ title, values }) => {
    const known = values.filter((value) => value !== null);
    return known.length ? `${title} from ${Relay.number(known[0])} to ${Relay.number(known[known.length - 1])}` : `${title} ${Relay.unknown}`;
  });
  const again = chart.parts.find((part) => part.again)?.x.length;
  return `${chart.title} over ${Relay.axes[Relay.state.axis]}: ${parts.join("; ")}${again ? `; trained again: ${Relay.counted(again, "commit")}` : ""}. The table below has the numbers.`;
};

Relay.chartTable = (chart) => {
  const [x, ...columns] = uPlot.join(chart.parts.filter((part) => !part.again).map((part) => [part.x, ...part.lines.map((line) => line.values)]));
  const lines = chart.parts.filter((part) => !part.again).flatMap((part) => part.lines);
  const count = Math.min(x.length, 40);
  const places = [...new Set(Array.from({ length: count }, (_, i) => Math.round(i * (x.length - 1) / Math.max(1, count - 1))))];
  return Relay.table(`rows-${chart.key}`, `${chart.title} at up to forty points`, [
    [Relay.axes[Relay.state.axis], (at) => Relay.state.axis === "time" ? Relay.time(x[at]) : Relay.number(x[at])],
    ...lines.map((line, place) => [line.title, (at) => Relay.number(columns[place][at]), true]),
  ], places, 40);
};
