import sys

import matplotlib.pyplot as plt

import sdp_lab

lines = sdp_lab.curves(sys.argv[1])
train = lines[lines["kind"] == "train"]
figure, axes = plt.subplots(figsize=(4.6, 3.1))
for coverage, of_coverage in train.groupby("coverage"):
    by_step = of_coverage.groupby("step")
    hours, loss = by_step["seconds"].mean() / 3600, by_step["loss"]
    axes.plot(hours, loss.mean(), label=f"C = {coverage}")
    axes.fill_between(hours, loss.min(), loss.max(), alpha=0.2)
axes.set(xlabel="training time (h)", ylabel="training loss (nats)")
axes.legend(title="mean and range over runs")
figure.savefig(sys.argv[2], bbox_inches="tight")
