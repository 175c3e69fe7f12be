// The panels of text, tables and bars; each fills its place from the document.
"use strict";
Relay.phases = {
  training: ["train"],
  "set-up": ["import", "prepare", "acquire", "restore", "cache", "compile", "capture"],
  evaluation: ["evaluate"],
  checkpoints: ["snapshot", "upload", "release"],
  other: ["other"],
};

Relay.panels = {
  overview(data) {
    const head = data.header;
    const share = head.target ? Math.min(1, head.step / head.target) : 0;
    const meter = Relay.el("progress", { max: "1", value: share, "aria-label": "Part of the target that is durable" });
    const big = Relay.el("p", { class: "big" }, Relay.share(share), Relay.el("span", { class: "quiet" },
      ` ${Relay.int(head.step)} of ${Relay.counted(head.target, "step")}`));
    const [early, middle, late] = head.finish ?? [];
    const half = middle ? ` (half of all plans by ${Relay.when(middle, true)})` : " (fewer than half of all plans within two years)";
    const finish = !head.finish ? null : !early ? ["not within two years, as things are"]
      : [Relay.time(early, true), ...(late ? [" to ", Relay.time(late, true)] : [" or much later"]), Relay.el("span", { class: "quiet" }, half)];
    const left = head.training_left_s;
    const training = left ? (left[0] === left[1] ? Relay.duration(left[0]) : `${Relay.duration(left[0])} to ${Relay.duration(left[1])}`) : null;
    const done = head.phase === "finished";
    const stopped = ["halted", "archived", "deleted"].includes(head.phase);
    const lease = head.lease;
    const held = lease.state === "held"
      ? [Relay.label(lease.account), ` since ${Relay.when(lease.since)}`, lease.ends_by ? `, ends by ${Relay.when(lease.ends_by)}` : ""]
      : lease.state === "free" || lease.state === "none" ? [lease.state] : [`expired; ${Relay.label(lease.account)} is silent, any session can take over`];
    return [
      Relay.el("div", { class: "progress" }, big, Relay.el("span", { class: `chip ${head.phase}` }, head.phase), meter),
      Relay.facts([
        ["Done by", ...(done ? ["target reached"] : stopped ? [`not trained: ${head.phase}`] : finish ?? ["unknown until sessions have been measured"])],
        done || stopped ? null : ["Training left", training ?? Relay.unknown],
        ["Lease", ...held],
        ["Safe checkpoint", ...(head.safe ? [`step ${Relay.int(head.safe.step)}, `, Relay.ago(head.safe.at)] : [head.phase === "deleted" ? "none any more" : "none yet"])],
        ["Validation", head.validation ? `${head.validation.text} at step ${Relay.int(head.validation.step)}` : Relay.unknown],
        head.best && head.best.step !== (head.validation && head.validation.step) ? ["Best", `${head.best.text} at step ${Relay.int(head.best.step)}`] : null,
        ["Next", head.next ? Relay.label(head.next) : "no proposal"],
        ["Lease time", `${head.hours.toFixed(1)} hours in ${Relay.counted(data.sessions_total, "session")}`],
        ["Trained twice", head.redone_steps ? `${Relay.counted(head.redone_steps, "step")}, after damage` : "none"],
      ]),
    ];
  },

  timeline(data) {
    const rows = Relay.filtered(data);
    if (!rows.length) return [Relay.el("p", {}, data.sessions.length ? "No session matches the filters." : "No session has trained yet.")];
    const kinds = [...new Set(rows.map((row) => row.kind))];
    return [
      Relay.lanes(rows, document.getElementById("timeline").clientWidth || 600, Relay.flagsOf(data)),
      Relay.legend([...kinds.map((kind) => [`end-${kind}`, Relay.words[kind]]),
        ...(data.notes.length ? [["flag-note", "note"]] : []), ...(data.incidents.length ? [["flag-incident", "incident"]] : [])]),
      Relay.details("sessions", `${Relay.counted(rows.length, "session")} as a table`, () => Relay.sessionTable([...rows].reverse())),
      data.sessions_total > data.sessions.length
        ? Relay.el("p", { class: "quiet" }, `The newest ${Relay.int(data.sessions.length)} of ${Relay.int(data.sessions_total)} sessions are shown.`) : null,
    ];
  },

  pace(data) {
    if (!data.sessions.length) return [Relay.el("p", {}, "Unknown until a session has trained.")];
    const told = data.sessions.filter((row) => row.phases);
    return [
      ...Relay.paces(data, document.getElementById("pace").clientWidth || 600),
      Relay.table("gpus", "Steps per hour by GPU", [
        ["GPU", (row) => row.name ?? Relay.unknown],
        ["sessions", (row) => Relay.int(row.sessions), true],
        ["steps", (row) => Relay.int(row.steps), true],
        ["time", (row) => Relay.duration(row.seconds), true],
        ["steps/h", (row) => Relay.int(row.steps_per_hour), true],
      ], data.gpus),
      Relay.el("h3", {}, "Time by phase"),
      ...(told.length ? [
        Relay.stack(Relay.sum(told), "All sessions with a report"),
        Relay.legend(Object.keys(Relay.phases).map((name) => [`phase-${name}`, name])),
        Relay.details("minutes", "By session", () => Relay.table("minutes-all", "Time by phase and session", [
          ["session", (row) => `${row.epoch}`],
          ["account", (row) => Relay.label(row.account)],
          ["GPU", (row) => row.gpu ?? Relay.unknown],
          ["minutes", (row) => Relay.stack(Relay.sum([row]), `Session ${row.epoch}`)],
        ], [...told].reverse())),
      ] : [Relay.el("p", {}, "Unknown: no session has left a report.")]),
    ];
  },

  machine(data) {
    const rows = data.sessions.filter((row) => row.machine);
    if (!rows.length) return [Relay.el("p", {}, "No session has measured its GPU. ", Relay.el("code", {}, "nvidia-ml-py"), " and ", Relay.el("code", {}, "psutil"), " do it (extra ", Relay.el("code", {}, "machine"), ").")];
    const told = (name, form) => (row) => (row.machine[name] === undefined ? Relay.unknown : Relay.forms[form](row.machine[name]));
    return [Relay.table("machine", "Machines: means over each session's commits, newest first", [
      ["session", Relay.sessionLink],
      ["account", (row) => Relay.label(row.account)],
      ["GPU", (row) => row.gpu ?? Relay.unknown],
      ["GPU busy", told("gpu_busy_ms", "share"), true],
      ["GPU memory", told("gpu_memory_bytes", "gigabytes"), true],
      ["power", told("gpu_joules_per_s", "watts"), true],
      ["temperature", told("gpu_celsius_s", "degrees"), true],
      ["host memory", told("host_memory_bytes", "gigabytes"), true],
    ], [...rows].reverse(), 8)];
  },

  settings(data) {
    if (!data.settings.length) return [Relay.el("p", {}, "Unknown until the run begins.")];
    return [Relay.details("pinned", `${Relay.counted(data.settings.length, "setting")}, pinned when the run began`, () =>
      Relay.table("pinned-all", "Settings of the run", [["setting", ([key]) => key], ["value", ([, text]) => Relay.el("span", { class: "wide" }, text)]], data.settings, 200))];
  },

  people(data) {
    if (!data.accounts.length) return [Relay.el("p", {}, "No account is registered, and none has trained.")];
    const rows = [...data.accounts].sort((a, b) => b.stands - a.stands);
    return [Relay.table("people", "Accounts: share of the run, and hours", [
      ["account", (row) => [Relay.el("span", {}, row.label), row.label === row.id ? null : Relay.el("span", { class: "quiet" }, ` ${row.id}`)]],
      ["state", (row) => [Relay.el("span", { class: `chip ${row.state}` }, row.state.replace("_", " ")), row.until ? ` until ${Relay.when(row.until)}` : "", row.next ? " · proposed next" : ""]],
      ["GPU", (row) => row.gpu ?? Relay.unknown],
      ["sessions", (row) => Relay.int(row.sessions), true],
      ["hours", (row) => (row.seconds / 3600).toFixed(1), true],
      ["steps kept", (row) => Relay.int(row.stands), true],
      ["share", (row) => Relay.share(row.share), true],
      ["hours left", (row) => Relay.el("span", { class: "wide" }, Relay.quota(row.quota))],
    ], rows, 25)];
  },

  storage(data) {
    const store = data.storage;
    const rate = store.upload_s && store.checkpoint_bytes ? `, ${Relay.size(store.checkpoint_bytes / store.upload_s)}/s` : "";
    return [Relay.facts([
      ["Store", store.store || store.kind || Relay.unknown],
      ["Kept", `${Relay.counted(store.checkpoints, "checkpoint")}, ${Relay.size(store.bytes)}`],
      ["Oldest kept", store.oldest_step === null ? "none" : `step ${Relay.int(store.oldest_step)}`],
      ["To be deleted", `${Relay.counted(store.deletable, "retired checkpoint")} (by gc)`],
      ["Damaged", store.damaged ? `${Relay.int(store.damaged)} known and not in use` : "none known"],
      ["One checkpoint", Relay.size(store.checkpoint_bytes)],
      ["Upload", store.upload_s ? `${Relay.duration(store.upload_s)} a checkpoint${rate}` : Relay.unknown],
      ["Delays training by", store.stall_ms === null ? Relay.unknown : `${Relay.int(store.stall_ms)} ms a checkpoint`],
      ["Not uploaded", store.unsent.length ? store.unsent.map((one) => `step ${Relay.int(one.step)} on the machine of ${Relay.label(one.account)}`).join("; ") : "none known"],
      ["Limit of the store", Relay.unknown],
    ])];
  },

  handoffs(data) {
    if (!data.handoffs.length) return [Relay.el("p", {}, "No session has continued another session's checkpoint yet.")];
    const exact = data.handoffs.filter((row) => row.certified === "exact").length;
    const word = { exact: "exact", "not-exact": "NOT exact", unknown: "unknown" };
    return [
      Relay.el("p", {}, `${Relay.int(exact)} of ${Relay.int(data.handoffs.length)} are exact: the first step matched the previous session bit for bit.`),
      Relay.table("handoffs", "Hand-offs, newest first", [
        ["session", (row) => `${row.epoch}`],
        ["from", (row) => Relay.label(row.after)],
        ["to", (row) => Relay.label(row.account)],
        ["at step", (row) => Relay.int(row.step), true],
        ["verdict", (row) => [Relay.el("span", { class: `chip ${row.certified}` }, word[row.certified] ?? row.certified), row.why ? ` ${row.why}` : ""]],
        ["state", (row) => row.state_hash ? Relay.el("code", {}, row.state_hash.slice(0, 12)) : Relay.unknown],
      ], data.handoffs, 6),
    ];
  },

  incidents(data) {
    if (!data.incidents.length) return [Relay.el("p", {}, "None.")];
    return [Relay.table("incidents", "Incidents, newest first, and what to do", [
      ["when", (row) => Relay.time(row.at)],
      ["what", (row) => Relay.el("span", { class: "chip" }, row.cause)],
      ["who", (row) => row.account ? Relay.label(row.account) : "no session"],
      ["at step", (row) => Relay.int(row.step), true],
      ["what happened", (row) => Relay.el("span", { class: "wide" }, row.text)],
      ["what to do", (row) => Relay.el("span", { class: "wide" }, row.todo)],
    ], data.incidents, 8)];
  },
};

Relay.filtered = (data) => {
  const { who, end, range } = Relay.state;
  const since = range ? Relay.data.now - 86400 * Number(range) : -Infinity;
  return data.sessions.filter((row) => (!who || row.account === who) && (!end || row.kind === end) && row.started + row.seconds >= since);
};

Relay.quota = (quota) => {
  if (!quota) return Relay.unknown;
  const of = quota.of_s ? ` of ${Relay.number(quota.of_s / 3600)}` : "";
  const age = quota.source === "estimated" ? "" : `, ${Relay.duration(Relay.now() - quota.read_at)} old`;
  const resets = quota.resets_at ? `; new hours ${Relay.when(quota.resets_at)}` : "";
  return `${(quota.left_s / 3600).toFixed(1)}${of} h (${quota.source}${age})${resets}`;
};

Relay.sessionLink = (row) => Relay.el("a", { href: `#session-${row.epoch}` }, `${row.epoch}`);

Relay.paces = (data, width) => {
  const pace = Relay.columns(data, width, "Steps per hour, by session", (row) => row.steps_per_hour, (value) => Relay.number(value));
  const goodput = Relay.columns(data, width, "Share of the time spent training, by session", (row) => row.goodput, (value) => Relay.share(value, 0));
  return [pace ?? Relay.el("p", {}, "No session has gained a step yet."), goodput];
};

// The report of the session that the address names (#session-12).
Relay.showSession = () => {
  const place = document.getElementById("session"), epoch = Number(/^#session-(\d+)$/.exec(location.hash)?.[1]);
  const row = Relay.data.sessions?.find((one) => one.epoch === epoch);
  if (!place) return null;
  place.hidden = !row;
  if (!row) return null;
  const report = row.report, told = row.machine ?? {};
  const close = Relay.el("a", { href: "#h-timeline" }, "close");
  const pairs = (of) => Object.entries(of).map(([name, value]) => `${name} ${typeof value === "number" ? Relay.number(value) : value}`).join(", ");
  const notes = Relay.data.notes.filter((one) => one.epoch === epoch);
  place.replaceChildren(
    Relay.el("div", { class: "head" }, Relay.el("h3", { id: "h-session", tabindex: "-1" }, `Session ${epoch}: ${Relay.label(row.account)}`), close),
    Relay.facts([
      ["Began", Relay.time(row.started)],
      ["Lease", Relay.duration(row.seconds)],
      ["End", row.kind === "open" ? "training" : row.end || Relay.words[row.kind]],
      ["GPU", row.gpu ?? Relay.unknown],
      ["Steps", `${Relay.int(row.from_step)} to ${Relay.int(row.to_step)}, ${Relay.int(row.stands)} kept`],
      ["Pace", row.steps_per_hour === null ? Relay.unknown : `${Relay.int(row.steps_per_hour)} steps/h in ${Relay.counted(row.commits, "commit")}`],
      ["Handoff", `${row.certified}${row.why ? `: ${row.why}` : ""}`],
      ...notes.map((one) => ["Note", one.text ?? "left out here"]),
      Object.keys(told).length ? ["Machine", Relay.machineText(told)] : null,
      report ? ["Time spent training", Relay.share(row.goodput)] : null,
      report ? ["Exit code", `${report.exit_code}`] : null,
      report && report.stall_ms !== null ? ["Longest stall by a checkpoint", `${Relay.int(report.stall_ms)} ms`] : null,
      report ? ["A kill would have lost", Relay.duration(report.at_risk_s)] : null,
      report && report.code_version ? ["Code", report.code_version] : null,
      report && report.next ? ["Proposed next", Relay.label(report.next)] : null,
    ]),
    ...(report && row.phases ? [Relay.stack(Relay.sum([row]), `Session ${epoch}`), Relay.legend(Object.keys(Relay.phases).map((name) => [`phase-${name}`, name]))] : []),
    ...(report && Object.keys(report.metrics).length ? [Relay.el("p", { class: "quiet" }, `Metrics: ${pairs(report.metrics)}`)] : []),
    ...(report && Object.keys(report.environment).length ? [Relay.el("p", { class: "quiet" }, `Environment: ${pairs(report.environment)}`)] : []),
    ...(report ? report.incidents.map((line) => Relay.el("p", { class: "notice" }, line)) : [Relay.el("p", { class: "quiet" }, "The session has left no report, or it is an older one.")]),
  );
  return place;
};

Relay.machineText = (told) => [["gpu_busy_ms", "share", "busy"], ["gpu_memory_bytes", "gigabytes", "GPU memory"], ["gpu_joules_per_s", "watts", ""], ["gpu_celsius_s", "degrees", ""], ["host_memory_bytes", "gigabytes", "host memory"]]
  .filter(([name]) => told[name] !== undefined).map(([name, form, word]) => `${Relay.forms[form](told[name])} ${word}`.trim()).join(", ");

Relay.sessionTable = (rows) => Relay.table("sessions-all", "Sessions, newest first", [
  ["session", Relay.sessionLink],
  ["account", (row) => Relay.label(row.account)],
  ["GPU", (row) => row.gpu ?? Relay.unknown],
  ["began", (row) => Relay.time(row.started)],
  ["length", (row) => Relay.duration(row.seconds), true],
  ["steps", (row) => Relay.int(row.to_step - row.from_step), true],
  ["kept", (row) => Relay.int(row.stands), true],
  ["steps/h", (row) => Relay.int(row.steps_per_hour), true],
  ["commits", (row) => Relay.int(row.commits), true],
  ["training", (row) => Relay.share(row.goodput, 0), true],
  ["end", (row) => [Relay.el("span", { class: `swatch end-${row.kind}`, "aria-hidden": "true" }), row.kind === "open" ? "training" : row.end || Relay.words[row.kind]]],
], rows, 25);

Relay.legend = (entries) => Relay.el("ul", { class: "legend" }, entries.map(([style, word]) =>
  Relay.el("li", {}, Relay.el("span", { class: `swatch ${style}`, "aria-hidden": "true" }), word)));

// Seconds by kind of work, summed over the sessions.
Relay.sum = (rows) => Object.fromEntries(Object.entries(Relay.phases).map(([name, parts]) =>
  [name, rows.reduce((all, row) => all + parts.reduce((sum, part) => sum + (row.phases[part] ?? 0), 0), 0)]));

Relay.stack = (parts, title) => {
  const whole = Object.values(parts).reduce((a, b) => a + b, 0) || 1;
  const told = Object.entries(parts).filter(([, seconds]) => seconds > 0);
  const text = told.map(([name, seconds]) => `${name} ${Relay.share(seconds / whole, 0)} (${Relay.duration(seconds)})`).join(", ");
  const bar = Relay.el("div", { class: "stack", role: "img", "aria-label": `${title}: ${text}`, title: text }, told.map(([name, seconds]) => {
    const part = Relay.el("span", { class: `phase-${name}` });
    part.style.flexGrow = String(seconds / whole);
    return part;
  }));
  return bar;
};
