"use strict";
// Searches: the server sends their progress, and rows of the table, which it has escaped.
(() => {
  const MAX_ROWS = 500;
  const count = (value) => value.toLocaleString("en");
  const countNoun = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
  const are = (value) => (value === 1 ? "is" : "are");

  function describe(progress, mode) {
    const parts = [`${count(progress.scanned)} read`, `${count(progress.found)} found`, `${count(progress.rate)} a second`];
    if (mode === "follow") { parts[2] = "waiting for more"; }
    else if (progress.done && progress.left === 0) { parts[2] = "everything is read"; }
    else if (progress.done) { parts[2] = `stopped, ${countNoun(progress.left, "offset")} ${are(progress.left)} not read`; }
    else {
      parts.push(`${count(progress.left)} left`);
      if (progress.rate > 0) { parts.push(`about ${count(Math.ceil(progress.left / progress.rate))} s`); }
    }
    if (progress.deleted) { parts.push(`${countNoun(progress.deleted, "offset")} deleted by retention meanwhile`); }
    return parts.join(" · ");
  }

  function start(element) {
    const status = element.querySelector(".progress"), problem = element.querySelector(".problem");
    const stop = element.querySelector("[data-stop]"), resume = element.querySelector("[data-resume]");
    const rows = document.getElementById("records"), mode = element.dataset.mode;
    const source = new EventSource(element.dataset.stream);
    let last = null;

    function showProblem(text) { problem.textContent = text; problem.hidden = false; }

    function finish() {
      source.close();
      stop.hidden = true;
      if (last && last.left !== 0) {
        const url = new URL(location.href);
        url.searchParams.set("positions", last.positions);
        resume.href = url.href;
        resume.hidden = false;
        status.textContent = mode === "follow"
          ? `${count(last.scanned)} read · ${count(last.found)} found · stopped`
          : describe({ ...last, done: true }, mode);
      }
    }

    source.onmessage = (message) => {
      const data = JSON.parse(message.data);
      if (data.error) { showProblem(data.error); finish(); return; }
      last = data.progress;
      if (data.html) {
        rows.insertAdjacentHTML(mode === "follow" ? "afterbegin" : "beforeend", data.html);
        while (rows.rows.length > MAX_ROWS) { rows.deleteRow(mode === "follow" ? -1 : 0); }
      }
      status.textContent = describe(last, mode);
      if (last.failed) { showProblem(`The filter has no result for ${countNoun(last.failed, "record")}, which ${are(last.failed)} left out. The first: ${last.failure}`); }
      if (last.done) { finish(); }
    };
    source.onerror = () => { showProblem("The connection to the broker is lost, or the search was refused."); finish(); };
    stop.addEventListener("click", finish);
  }

  document.querySelectorAll("[data-stream]").forEach(start);
})();
