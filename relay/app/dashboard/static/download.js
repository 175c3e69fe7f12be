// Saves a chart as CSV, PNG or SVG; everything happens in the browser.
"use strict";
Relay.save = (name, type, content) => {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = Relay.el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};

Relay.fileName = (chart, ending) => {
  const words = `${Relay.data.run ?? "runs"} ${chart.title}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  return `${words.slice(0, 80)}.${ending}`;
};

// A cell that no spreadsheet takes for a formula.
Relay.cell = (value) => {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

Relay.csv = (chart) => {
  const parts = chart.parts.filter((part) => part.x.length);
  const [x, ...columns] = uPlot.join(parts.map((part) => [part.x, ...part.lines.map((line) => line.values)]));
  const heads = parts.flatMap((part) => part.lines.map((line) => (part.again ? `${line.title} (trained again)` : line.title)));
  const axis = Relay.state.axis === "time" ? "unix seconds" : Relay.axes[Relay.state.axis];
  const lines = x.map((at, row) => [at, ...columns.map((column) => column[row])].map(Relay.cell).join(","));
  return [[axis, ...heads].map(Relay.cell).join(","), ...lines, ""].join("\n");
};

Relay.legendOf = (drawn) => drawn.tracks
  .map((track, place) => ({ ...track, series: drawn.plot.series[place + 1] }))
  .filter(({ kind, series }) => kind === "main" && series.show)
  .map(({ line, series }) => ({ title: line.title, stroke: series.stroke(), dashed: line.dashed }));

Relay.png = (drawn) => {
  const { canvas } = drawn.plot.ctx, ratio = uPlot.pxRatio, head = 44 * ratio;
  const picture = Relay.el("canvas", { width: canvas.width, height: canvas.height + head });
  const ctx = picture.getContext("2d");
  ctx.fillStyle = Relay.css("--card");
  ctx.fillRect(0, 0, picture.width, picture.height);
  ctx.fillStyle = Relay.css("--ink");
  ctx.font = `bold ${13 * ratio}px system-ui, sans-serif`;
  ctx.fillText(`${Relay.data.run ?? ""} ${drawn.chart.title}`.trim(), 8 * ratio, 16 * ratio);
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  let left = 8 * ratio;
  for (const { title, stroke } of Relay.legendOf(drawn)) {
    ctx.fillStyle = stroke;
    ctx.fillRect(left, 26 * ratio, 14 * ratio, 3 * ratio);
    ctx.fillStyle = Relay.css("--ink");
    ctx.fillText(title, left + 18 * ratio, 32 * ratio);
    left += ctx.measureText(title).width + 34 * ratio;
  }
  ctx.drawImage(canvas, 0, head);
  return picture;
};

// The chart as vectors, from the same scales and ticks that uPlot has on the screen.
Relay.vector = (drawn) => {
  const { plot, chart } = drawn, { clientWidth: wide, clientHeight: high } = plot.over;
  const left = 70, top = 52, width = left + wide + 20, height = top + high + 56;
  const ink = Relay.css("--ink"), quiet = Relay.css("--quiet"), rule = Relay.css("--rule");
  const x = (value) => left + plot.valToPos(value, "x"), y = (value) => top + plot.valToPos(value, "y");
  const text = (at, down, words, more = {}) => Relay.svg("text", { x: at, y: down, fill: ink, "font-size": 11, "font-family": "sans-serif", ...more }, words);
  const picture = Relay.svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    Relay.svg("rect", { width, height, fill: Relay.css("--card") }),
    text(8, 18, `${Relay.data.run ?? ""} ${chart.title}`.trim(), { "font-weight": "bold", "font-size": 13 }));
  const marks = plot.axes.map((axis) => (axis._splits ?? []).map((split, place) => [split, (axis._values ?? [])[place]]));
  for (const [split, word] of marks[1]) {
    picture.append(Relay.svg("line", { x1: left, x2: left + wide, y1: y(split), y2: y(split), stroke: rule }));
    if (word) picture.append(text(left - 6, y(split) + 4, word, { "text-anchor": "end", fill: quiet }));
  }
  for (const [split, word] of marks[0]) {
    if (word) picture.append(text(x(split), top + high + 30, String(word).replace("\n", " "), { "text-anchor": "middle", fill: quiet }));
  }
  picture.append(text(left + wide / 2, top + high + 48, Relay.axes[Relay.state.axis], { "text-anchor": "middle", fill: quiet }));
  const { min, max } = plot.scales.x, inside = (at) => at >= min && at <= max;
  for (const { from, to, who } of chart.owners ?? []) {
    const begin = Math.max(min, from), end = Math.min(max, to);
    if (end > begin) picture.append(Relay.svg("rect", { x: x(begin), y: top + high + 4, width: x(end) - x(begin), height: 10, fill: Relay.css(who === null ? "--who-rest" : `--who-${who}`) }));
  }
  drawn.tracks.forEach(({ line, kind }, place) => {
    const series = plot.series[place + 1], column = plot.data[place + 1], stroke = series.stroke();
    if (!series.show) return;
    const points = plot.data[0].map((at, row) => [at, column[row]]).filter(([at, value]) => inside(at) && value !== null && value !== undefined);
    if (kind === "again") {
      picture.append(...points.map(([at, value]) => Relay.svg("circle", { cx: x(at), cy: y(value), r: 3, fill: "none", stroke })));
      return;
    }
    const path = points.map(([at, value], row) => `${row ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    picture.append(Relay.svg("path", { d: path, fill: "none", stroke, "stroke-width": 1.6, "stroke-opacity": kind === "raw" ? 0.3 : null, "stroke-dasharray": line.dashed ? "6 4" : null }));
  });
  let across = 8;
  for (const { title, stroke } of Relay.legendOf(drawn)) {
    picture.append(Relay.svg("rect", { x: across, y: 30, width: 14, height: 3, fill: stroke }), text(across + 18, 36, title));
    across += 34 + 6.2 * title.length;
  }
  return new XMLSerializer().serializeToString(picture);
};

Relay.downloads = {
  CSV: ({ chart }) => Relay.save(Relay.fileName(chart, "csv"), "text/csv", Relay.csv(chart)),
  PNG: (drawn) => Relay.png(drawn).toBlob((blob) => Relay.save(Relay.fileName(drawn.chart, "png"), "image/png", blob)),
  SVG: (drawn) => Relay.save(Relay.fileName(drawn.chart, "svg"), "image/svg+xml", Relay.vector(drawn)),
};
