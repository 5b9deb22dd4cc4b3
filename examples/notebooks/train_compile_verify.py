# %% [markdown]
# # From embeddings to a verified bundle
#
# Projectors are trained on pairs of embeddings, compiled for a target, and measured stage by stage
# on pairs that they have not seen. `say=print` shows the progress of each step.

# %%
import numpy as np

import cimtool

# %% [markdown]
# Pairs of a text and an image: here the image is the text, turned and with noise. Yours come from
# an encoder, as rows of two arrays.

# %%
rng = np.random.default_rng(7)
text = rng.normal(size=(700, 24)).astype(np.float32)
turn = np.linalg.qr(rng.normal(size=(24, 24)))[0]
image = (text @ turn + 0.7 * rng.normal(size=text.shape)).astype(np.float32)
seen = {"text": text[:500], "image": image[:500]}
unseen = {"text": text[500:], "image": image[500:]}

# %% [markdown]
# ## Train

# %%
run = cimtool.train(
    seen, "run", loss="info-nce", epochs=12, batch=50, learning_rate=3e-3,
    options={"model.hidden": 64, "model.width": 16}, say=print,
)  # fmt: skip
run

# %% [markdown]
# ## Compile
#
# The score is `csd`, b - a ed, of the mean squared distance. InfoNCE says neither a nor b. Ranges are set by rows that training has seen.

# %%
model = cimtool.ModelSource("run/model.pth", head="csd", a=0.1, b=0.0)
bundle = cimtool.compile(
    "run/model.pth", head="csd", a=0.1, b=0.0, calibration=seen, target="isaac-rram-128"
)
bundle

# %% [markdown]
# ## Verify
#
# The last row of the first table is what a chip would retrieve, with the 95% interval of the
# queries.

# %%
report = cimtool.verify(bundle.folder, unseen)
report

# %%
report.to_dataframe("drift")

# %%
report.plot("budget")

# %% [markdown]
# ## Beside the embeddings themselves

# %%
cimtool.evaluate(unseen, model, bundle.folder)
