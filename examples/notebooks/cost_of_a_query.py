# %% [markdown]
# # What a query costs
#
# An estimate needs a bundle and its target, and no data. This one is the small reference bundle of
# the repository.

# %%
from pathlib import Path

import cimtool

folder = Path("../../exports/reference-small@isaac-rram-128")
cimtool.load(folder)

# %% [markdown]
# ## Where the layers are, and what they take
#
# `>` is a lower bound: some parts have no figure. The assumptions are in `to_markdown()`.

# %%
estimate = cimtool.cost(folder, gallery=10_000)
estimate

# %%
estimate.to_dataframe("layers")

# %% [markdown]
# ## What would do instead, by the size of the gallery

# %%
estimate.plot("instead")

# %% [markdown]
# ## Where the layers lie

# %%
estimate.plot("placement")

# %% [markdown]
# ## Galleries of three sizes

# %%
sizes = (100, 10_000, 1_000_000)
queries = [cimtool.cost(folder, gallery=size).to_dict()["query"] for size in sizes]
{size: f"{query['energy_pj']['value']:,.0f} pJ" for size, query in zip(sizes, queries, strict=True)}
