"use strict";
// Plots. Their colours are those of the style sheet, so that they follow the dark and light themes.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const units = ["", "Ki", "Mi", "Gi", "Ti"];

  function formatBytes(value) {
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return Number(value.toFixed(1)) + " " + units[unit] + "B";
  }

  function formatCount(value) {
    return value >= 1e6 ? (value / 1e6).toFixed(1) + " M" : value >= 1e4 ? (value / 1e3).toFixed(1) + " k" : value.toLocaleString("en");
  }

  function formatMilliseconds(value) { return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3 }) + " ms"; }

  // Steps between the marks of an axis of bytes: 16 KiB, not 19.5 KiB.
  const byteSteps = Array.from({ length: 50 }, (_, power) => 2 ** power);

  const formats = { bytes: formatBytes, ms: formatMilliseconds };

  function formatTime(at) { return new Date(at * 1000).toTimeString().slice(0, 8); }

  // The range of the time axis: at least a minute, up to the last sample. For a single sample uPlot
  // proposes the day after it.
  function atLeastAMinute(plot, low, high) {
    const times = plot.data[0];
    const end = times.length === 1 ? times[0] : high ?? Date.now() / 1000;
    return [Math.min(low ?? end, end - 60), end];
  }

  // Indexes of values without a neighbour: they need points, because no line leads to them.
  function findSingleValues(plot, series) {
    const values = plot.data[series];
    return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? values[at + 1] ?? null) === null ? [at] : []));
  }

  function makePlot(element) {
    const names = element.dataset.series.split(",").map((one) => one.split(":"));
    const format = formats[element.dataset.unit] ?? formatCount;
    const suffix = element.dataset.suffix ?? "/s";
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const strokes = [colour("--accent"), colour("--second")];
    const options = {
      width: element.clientWidth, height: 150, cursor: { y: false },
      axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map(formatTime) }, { ...axis, size: 70, values: (_, ticks) => ticks.map(format), ...(format === formatBytes && { incrs: byteSteps }) }],
      scales: { x: { range: atLeastAMinute }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      series: [
        { value: (_, at) => (at === null ? "–" : new Date(at * 1000).toLocaleTimeString()) },
        ...names.map(([, label], index) => ({
          label, stroke: strokes[index], width: 1.5, points: { show: true, filter: findSingleValues, size: 6, fill: strokes[index] },
          value: (_, value) => (value === null ? "–" : format(value) + suffix),
        })),
      ],
    };
    const plot = new uPlot(options, [[], ...names.map(() => [])], element);
    new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 150 })).observe(element);
    return (columns) => plot.setData([columns.at_s, ...names.map(([name]) => columns[name])]);
  }

  function startPlots(group) {
    const updates = [...group.querySelectorAll("[data-series]")].map(makePlot);
    const refresh = async () => {
      const response = await fetch(group.dataset.plots).catch(() => null);
      if (response && response.ok) {
        const columns = await response.json();
        updates.forEach((update) => update(columns));
      }
    };
    refresh();
    setInterval(refresh, 10000);
  }

  document.querySelectorAll("[data-plots]").forEach(startPlots);
})();
