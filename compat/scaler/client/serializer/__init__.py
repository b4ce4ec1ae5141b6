"""Where the Scaler system keeps its serializers."""
