"""The mathematics of training on preferences and rewards: tensors in, tensors out.

No models, no files, no state beyond the three small controllers. Letters used for shapes:

    B  sequences in a batch        R  response positions, padded on the right
    V  tokens of the vocabulary    N  pairs in a batch

A *mask* has the shape of the values it goes with; 1 (or True) marks a real response token, the
end-of-sequence token included. Values under a 0 of the mask never change a result. *nats* are
natural-log units.
"""
