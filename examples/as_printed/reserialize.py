"""A value that was changed in place, and is to be looked at anew. ``client`` is there already."""

data = load_dataframe()
client.submit_verbose(train, (data,), {})

data.drop(columns=["unused"], inplace=True)
client.submit_verbose(train, (data,), {}, reserialize=True)
