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
      ` ${Relay.int(head.step)} of ${Relay.int(head.target)} steps`));
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
        ["Trained twice", head.redone_steps ? `${Relay.int(head.redone_steps)} steps, after damage` : "none"],
      ]),
    ];
  },

  timeline(data) {
    const rows = Relay.filtered(data);
    if (!rows.length) return [Relay.el("p", {}, data.sessions.length ? "No session matches the filters." : "No session has trained yet.")];
    const kinds = [...new Set(rows.map((row) => row.kind))];
    return [
      Relay.lanes(rows, document.getElementById("timeline").clientWidth || 600),
      Relay.legend(kinds.map((kind) => [`end-${kind}`, Relay.words[kind]])),
      Relay.details("sessions", `${Relay.counted(rows.length, "session")} as a table`, () => Relay.sessionTable([...rows].reverse())),
      data.sessions_total > data.sessions.length
        ? Relay.el("p", { class: "quiet" }, `The newest ${Relay.int(data.sessions.length)} of ${Relay.int(data.sessions_total)} sessions are shown.`) : null,
    ];
  },

  pace(data) {
    if (!data.sessions.length) return [Relay.el("p", {}, "Unknown until a session has trained.")];
    const told = data.sessions.filter((row) => row.phases);
    return [
      Relay.columns(data, document.getElementById("pace").clientWidth || 600),
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

Relay.sessionTable = (rows) => Relay.table("sessions-all", "Sessions, newest first", [
  ["session", (row) => `${row.epoch}`],
  ["account", (row) => Relay.label(row.account)],
  ["GPU", (row) => row.gpu ?? Relay.unknown],
  ["began", (row) => Relay.time(row.started)],
  ["length", (row) => Relay.duration(row.seconds), true],
  ["steps", (row) => Relay.int(row.to_step - row.from_step), true],
  ["kept", (row) => Relay.int(row.stands), true],
  ["steps/h", (row) => Relay.int(row.steps_per_hour), true],
  ["commits", (row) => Relay.int(row.commits), true],
  ["training", (row) => Relay.share(row.goodput, 0), true],
  ["end", (row) => [Relay.el("span", { class: `swatch end-${row.kind}`, "aria-hidden": "true" }), row.end === "open" ? "training" : row.end || Relay.words[row.kind]]],
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
