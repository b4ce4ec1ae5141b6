"""Where the Scaler system keeps what stands in for other libraries."""
