"""Draws a chart with matplotlib into the output directory."""

import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
rain = [62, 48, 55, 41, 38, 29]

figure, axes = plt.subplots(figsize=(6, 4), dpi=100)
axes.bar(months, rain, color="steelblue")
axes.set_title("Rain by month")
axes.set_ylabel("mm")
figure.savefig("/output/chart.png")

with open("/output/chart.png", "rb") as file:
    header = file.read(24)
width, height = int.from_bytes(header[16:20]), int.from_bytes(header[20:24])
print("PNG" if header.startswith(b"\x89PNG\r\n") else "not a PNG", f"{width}x{height}")
print("files:", sorted(os.listdir("/output")))
