"""The process that answers what people ask models by hand."""
