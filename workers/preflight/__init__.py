"""What is looked at before a run: configuration, data, reward, critic, memory."""
