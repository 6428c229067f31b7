"""Where rewards come from: text in, one number per response out."""
