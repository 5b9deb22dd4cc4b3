# %% [markdown]
# # Which bits?
#
# A sweep compiles and measures every point of a grid, and names the cheapest within a budget.

# %%
import numpy as np

import cimtool

# %%
rng = np.random.default_rng(7)
text = rng.normal(size=(500, 16)).astype(np.float32)
turn = np.linalg.qr(rng.normal(size=(16, 16)))[0]
image = (text @ turn + 0.5 * rng.normal(size=text.shape)).astype(np.float32)
seen = {"text": text[:300], "image": image[:300]}
unseen = {"text": text[300:], "image": image[300:]}
run = cimtool.train(
    seen, "run", loss="info-nce", epochs=8, batch=50, learning_rate=3e-3,
    options={"model.hidden": 32, "model.width": 16},
)  # fmt: skip

# %% [markdown]
# ## Sweep

# %%
sweep = cimtool.sweep(
    "run/model.pth", head="csd", a=0.1, b=0.0, calibration=seen, data=unseen,
    target="isaac-rram-128",
    grid={"weight_bits": [4, 6, 8], "adc_bits": [5, 6, 8]}, budget={"r1_loss": 0.1},
    output="sweep", say=print,
)  # fmt: skip
sweep

# %%
points = sweep.to_dataframe()
points[["point", "weight_bits", "adc_bits", "RMSE"]]

# %% [markdown]
# ## Drift against the energy of a query
#
# Points on the front have a name: no other is better in both.

# %%
sweep.plot("energy_pj")
