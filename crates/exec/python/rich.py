"""Results of a session beyond the text of a value: MIME bundles, figures, data frames.

Compiled when a session first has such a result. Everything here runs in the guest, and the server checks what it gets.
"""
import base64
import json
import re

RECORDS = "application/vnd.ringfence.data+json"
CHART = "application/vnd.ringfence.chart+json"
# The id of a display, for those who can update it later.
DISPLAY = "application/vnd.ringfence.display+json"

MAX_RESULTS = 32
MAX_DATUM = 4 << 20
MAX_TOTAL = 8 << 20
MAX_FORMATS = 16
MAX_ROWS = 1000
MAX_POINTS = 5000

BINARY = {"image/png", "image/jpeg", "application/pdf"}
TEXT = {"text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript"}

VENDORS = re.compile(r"application/vnd\.[A-Za-z0-9._-]+\+json")

METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


def is_json(mime):
    return mime == "application/json" or VENDORS.fullmatch(mime) is not None and len(mime) <= 100


def encode(mime, data):
    """The bytes of a datum; None for one that is not of its type."""
    if mime in BINARY:
        return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else base64.b64decode(data)
    if is_json(mime):
        # Some give the text of JSON already.
        data = data if isinstance(data, str) and mime != "application/json" else json.dumps(data, allow_nan=False)
        return data.encode("utf-8")
    if mime in TEXT:
        return data.encode("utf-8", "backslashreplace")
    return None


class Shortened:
    """Data whose end was cut."""

    def __init__(self, data):
        self.data = data


def own(value, name):
    """What the method of this name returns, without the metadata that may come along."""
    if isinstance(value, type):
        return None
    method = getattr(value, name, None)
    if not callable(method):
        return None
    try:
        data = method()
    except NotImplementedError:
        return None
    return data[0] if isinstance(data, tuple) and len(data) == 2 else data


class Results:
    """The results of one evaluation, in order, within bounds."""

    def __init__(self, wanted, marked=False):
        self.wanted, self.marked = wanted, marked
        self.clear()

    def clear(self, wait=False):
        """Drops all results; when the next one is there if it shall wait."""
        self.waits = wait
        if not wait:
            self.parts, self.sizes = [], []
            # The place of what has an id, and if that came as an update.
            self.displays = {}
            self.dropped = self.total = 0

    @property
    def count(self):
        return len(self.parts)

    def is_full(self):
        return self.count == MAX_RESULTS or self.total >= MAX_TOTAL

    def add(self, value, main=False, **display):
        self.add_bundle(bundle(value), main, **display)
        figure = loaded("matplotlib.figure", "Figure")
        if main and figure and isinstance(value, figure):
            # Or it would come again, as one that is open.
            loaded("matplotlib._pylab_helpers", "Gcf").destroy_fig(value)

    def add_bundle(self, data, main=False, display_id=None, update=False):
        if self.waits:
            self.clear()
        place, update = self.displays.get(display_id, (None, update)) if update else (None, False)
        if place is None and self.count == MAX_RESULTS:
            self.dropped += 1
            return
        if place is not None:
            self.total -= self.sizes[place]
        if display_id is not None and self.marked:
            data = {DISPLAY: {"id": str(display_id), "update": update}} | data
        before, formats = self.total, self.formats(data)
        part, size = bytes([main, len(formats)]) + b"".join(formats), self.total - before
        if place is None:
            place = self.count
            self.parts.append(part)
            self.sizes.append(size)
        else:
            self.parts[place], self.sizes[place] = part, size
        if display_id is not None:
            self.displays[display_id] = place, update

    def formats(self, data):
        """What a bundle has, encoded, within the bounds."""
        formats = []
        for mime, datum in data.items():
            shortened = isinstance(datum, Shortened)
            datum = datum.data if shortened else datum
            if datum is None or len(formats) == MAX_FORMATS or not isinstance(mime, str):
                continue
            try:
                encoded = encode(mime, datum)
            except (ValueError, TypeError, AttributeError, RecursionError):
                encoded = b""
                datum = None
            if encoded is None:
                continue
            if mime == "text/plain" and len(encoded) > self.wanted:
                encoded = encoded[: self.wanted].decode("utf-8", "ignore").encode()
                shortened = True
            name = mime.encode("ascii")
            fits = datum is not None and len(encoded) <= MAX_DATUM and self.total + len(encoded) <= MAX_TOTAL
            head = bytes([len(name)]) + name + bytes([2 if shortened and fits else not fits]) + len(encoded).to_bytes(4, "little")
            formats.append(head + encoded if fits else head)
            if fits:
                self.total += len(encoded)
        return formats

    def extend(self, other):
        """Adds results that were kept."""
        for part, size in zip(other.parts, other.sizes):
            if self.count == MAX_RESULTS or self.total + size > MAX_TOTAL:
                self.dropped += 1
            else:
                self.parts.append(part)
                self.sizes.append(size)
                self.total += size

    def encoded(self):
        return min(self.dropped, 0xFFFFFFFF).to_bytes(4, "little") + b"".join(self.parts)

    def collect_figures(self):
        """Takes the figures that are open, and closes them."""
        from matplotlib import _pylab_helpers

        for manager in _pylab_helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if figure.axes or figure.texts or figure.images:
                self.add(figure)
        _pylab_helpers.Gcf.destroy_all()


class Handle:
    """What `display(value, display_id=True)` returns."""

    def __init__(self, display, display_id):
        self._display, self.display_id = display, display_id

    def __repr__(self):
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, value, **options):
        self._display.show(value, **{**options, "display_id": self.display_id})

    def update(self, value, **options):
        self._display.update(value, **{**options, "display_id": self.display_id})


def bundle(value):
    """What a value offers, by MIME type. An exception of one of its methods is the program's."""
    data = {"text/plain": repr(value)}
    figure = loaded("matplotlib.figure", "Figure")
    if figure and isinstance(value, figure):
        return data | figure_data(value)
    offered = getattr(value, "_repr_mimebundle_", None)
    if callable(offered) and not isinstance(value, type):
        offered = offered(include=None, exclude=None)
        offered = offered[0] if isinstance(offered, tuple) else offered
        data.update(offered or {})
    for name, mime in METHODS.items():
        if mime not in data:
            found = own(value, name)
            if found is not None:
                data[mime] = found
    frame = loaded("pandas", "DataFrame")
    if frame and isinstance(value, frame):
        columns = records(value)
        data[RECORDS] = columns if len(value) <= MAX_ROWS else Shortened(columns)
    return data


def loaded(module, name):
    """A class of a module that the program has imported."""
    import sys

    return getattr(sys.modules.get(module), name, None)


def records(frame):
    """The columns of a data frame, as lists of what JSON has."""
    table = json.loads(frame.head(MAX_ROWS).to_json(orient="split", date_format="iso"))
    columns = [str(column) for column in frame.columns]
    return {column: [row[number] for row in table["data"]] for number, column in enumerate(columns)}


def figure_data(figure):
    import io

    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    data = {"image/png": picture.getvalue()}
    try:
        chart = chart_of_figure(figure)
    except Exception:
        chart = None  # What cannot be told as data is still a picture.
    return data | ({CHART: chart} if chart else {})


def chart_of_figure(figure):
    """The data behind a figure, in the shapes of E2B's code interpreter; None for an empty one."""
    axes = figure.get_axes()
    if not any(one.has_data() for one in axes):
        return None
    if len(axes) == 1:
        return chart_of_axes(axes[0])
    title = figure._suptitle.get_text() if figure._suptitle else ""
    return {"type": "superchart", "title": title or None, "elements": [chart_of_axes(one) for one in axes]}


def chart_of_axes(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    from matplotlib.text import Text

    drawn = [one for one in axes.get_children() if one in set(axes._children) and not isinstance(one, Text)]
    beside_grid = [one for one in drawn if not (isinstance(one, Line2D) and is_grid_line(one))]
    every = lambda kinds, things: all(isinstance(one, kinds) for one in things)
    chart = {"type": "unknown", "title": axes.get_title() or None, "elements": []}
    if every(Line2D, drawn):
        return chart | {"type": "line"} | labels(axes) | scales(axes) | {"elements": lines(axes)}
    if every((PathPatch, Line2D), drawn):
        return chart | {"type": "box_and_whisker"} | boxes(axes)
    if every(PathCollection, beside_grid):
        return chart | {"type": "scatter"} | labels(axes) | scales(axes) | {"elements": clouds(axes)}
    if every(Wedge, beside_grid):
        return chart | {"type": "pie", "elements": wedges(axes)}
    if every(Rectangle, beside_grid) and axes.containers:
        return chart | {"type": "bar"} | bars(axes)
    return chart


def is_grid_line(line):
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def labels(axes):
    def unit(label):
        found = re.search(r"\s\((.*?)\)|\[(.*?)\]", label)
        return (found.group(1) or found.group(2)) if found else None

    x, y = axes.get_xlabel(), axes.get_ylabel()
    return {"x_label": x or None, "y_label": y or None, "x_unit": unit(x), "y_unit": unit(y)}


def swapped(named):
    pairs = {"x_label": "y_label", "y_label": "x_label", "x_unit": "y_unit", "y_unit": "x_unit"}
    return {pairs[name]: value for name, value in named.items()}


def scales(axes):
    return scale("x", axes.xaxis, axes.get_xscale()) | scale("y", axes.yaxis, axes.get_yscale())


def scale(name, axis, kind):
    import matplotlib.dates

    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    dates = isinstance(converter, matplotlib.dates._SwitchableDateConverter)
    places = list(axis.get_majorticklocs())
    texts = [label.get_text() for label in axis.get_ticklabels()]
    ticks = [matplotlib.dates.num2date(place).isoformat() for place in places] if dates else [plain(one) for one in places]
    if dates:
        kind = "datetime"
    elif kind == "linear" and all(tick == at and text != str(at) for at, (tick, text) in enumerate(zip(ticks, texts))):
        kind = "categorical"
    return {f"{name}_ticks": ticks, f"{name}_tick_labels": texts, f"{name}_scale": kind}


def plain(value):
    """A coordinate as JSON has it: a number, a text, or nothing for what is no number."""
    import datetime
    import math

    if isinstance(value, datetime.date):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    if isinstance(value, str):
        return str(value)
    value = float(value)
    return value if math.isfinite(value) else None


def points(pairs):
    return [[plain(x), plain(y)] for x, y in list(pairs)[:MAX_POINTS]]


def lines(axes):
    found = []
    for line in axes.get_lines():
        if not is_grid_line(line):
            label = line.get_label()
            label = f"Line {label[6:]}" if label.startswith("_child") else label
            found.append({"label": label, "points": points(zip(line.get_xdata(), line.get_ydata()))})
    return found


def clouds(axes):
    return [{"label": one.get_label(), "points": points(one.get_offsets())} for one in axes.collections]


def wedges(axes):
    return [
        {"label": one.get_label(), "angle": rounded(abs(one.theta2 - one.theta1)), "radius": float(one.r)}
        for one in axes.patches
    ]


def rounded(value):
    return float(f"{float(value):.9g}")


def bars(axes):
    named, elements = labels(axes), []
    for container in axes.containers:
        group = container.get_label()
        group = f"Group {group[10:]}" if group.startswith("_container") else group
        rectangles = list(container)[:MAX_POINTS]
        lying = all(one.get_height() == rectangles[0].get_height() for one in rectangles) and len(rectangles) > 1
        axis = axes.yaxis if lying else axes.xaxis
        size = (lambda one: one.get_width()) if lying else (lambda one: one.get_height())
        if lying and not elements:
            named = swapped(named)
        texts = [label.get_text() for label in axis.get_ticklabels()]
        elements += [
            {"label": text, "group": group, "value": plain(size(one))} for text, one in zip(texts, rectangles)
        ]
    return named | {"elements": elements}


def boxes(axes):
    """Each box is a patch; of the lines around it, two lead to the whiskers, one is the median, the rest outliers."""
    shapes = [(patch.get_path().vertices[:, 0], patch.get_path().vertices[:, 1]) for patch in axes.patches]
    upright = len({rounded(max(x) - min(x)) for x, _ in shapes}) == 1
    along = (lambda x, y: (x, y)) if upright else (lambda x, y: (y, x))
    texts = [label.get_text() for label in (axes.xaxis if upright else axes.yaxis).get_ticklabels()]
    elements = []
    for text, shape in zip(texts, shapes):
        across, values = along(*shape)
        low, high = rounded(min(values)), rounded(max(values))
        left, right = min(across), max(across)
        box = {"label": text, "min": low, "first_quartile": low, "median": low, "third_quartile": high, "max": high, "outliers": []}
        for line in axes.lines:
            x, y = along(line.get_xdata(), line.get_ydata())
            if not len(x) or not all(left <= one <= right for one in x):
                continue
            y = [rounded(one) for one in y]
            if line.get_linestyle() == "None":
                box["outliers"] += y
            elif len(y) == 2 and y[0] != y[1]:
                box["min"], box["max"] = min(box["min"], *y), max(box["max"], *y)
            elif len(y) == 2 and low <= y[0] <= high and x[0] == left and x[1] == right:
                box["median"] = y[0]
        elements.append(box)
    return (labels(axes) if upright else swapped(labels(axes))) | {"elements": elements}
