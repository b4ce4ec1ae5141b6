"""A running cluster in a browser: a Bokeh server that shows a model. It needs the extra monitor."""
