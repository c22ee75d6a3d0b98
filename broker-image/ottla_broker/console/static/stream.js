"use strict";
// Searches: the server sends their progress, and rows of the table, which it has escaped.
(() => {
  const MAX_ROWS = 500;
  const count = (value) => value.toLocaleString("en");

  function describe(progress, mode) {
    const parts = [`${count(progress.scanned)} read`, `${count(progress.found)} found`, `${count(progress.rate)} a second`];
    if (mode === "follow") { parts[2] = "waiting for more"; }
    else if (progress.done && progress.left === 0) { parts[2] = "everything is read"; }
    else if (progress.done) { parts[2] = `stopped, ${count(progress.left)} offsets are not read`; }
    else {
      parts.push(`${count(progress.left)} left`);
      if (progress.rate > 0) { parts.push(`about ${count(Math.ceil(progress.left / progress.rate))} s`); }
    }
    if (progress.deleted) { parts.push(`${count(progress.deleted)} offsets deleted by retention meanwhile`); }
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
      if (last.failed) { showProblem(`The filter has no result for ${count(last.failed)} records, which are left out. The first: ${last.failure}`); }
      if (last.done) { finish(); }
    };
    source.onerror = () => { showProblem("The connection to the broker is lost, or the search was refused."); finish(); };
    stop.addEventListener("click", finish);
  }

  document.querySelectorAll("[data-stream]").forEach(start);
})();
