// Draws every picture from the JSON beside it, in the colours of the page's theme, and again when the theme changes.
(function () {
  "use strict";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function themed(value, colours) {
    if (typeof value === "string") return Object.prototype.hasOwnProperty.call(colours, value) ? colours[value] : value;
    if (Array.isArray(value)) return value.map(function (item) { return themed(item, colours); });
    if (value && typeof value === "object") {
      var out = {};
      Object.keys(value).forEach(function (key) { out[key] = themed(value[key], colours); });
      return out;
    }
    return value;
  }

  function draw() {
    var style = getComputedStyle(document.documentElement);
    var colours = {};
    ["ink", "faint", "grid", "paper", "idle"].forEach(function (name) {
      colours["$" + name] = style.getPropertyValue("--" + name).trim();
    });
    document.querySelectorAll("script[data-plot]").forEach(function (script) {
      var figure = themed(JSON.parse(script.textContent), colours);
      figure.layout.font.family = style.getPropertyValue("--font");
      figure.layout.hoverlabel = {
        bgcolor: colours.$paper, bordercolor: colours.$grid, align: "left", font: { color: colours.$ink }
      };
      window.Plotly.react(document.getElementById(script.dataset.plot), figure.data, figure.layout, {
        displayModeBar: false, responsive: true
      });
    });
  }

  draw();
  dark.addEventListener("change", draw);
})();
