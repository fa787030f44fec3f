"""The smallest trial: a line through points. Stop it with Ctrl-C, run it again, and it goes on where it was."""

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from determined import pytorch

x = torch.linspace(-1, 1, 512).unsqueeze(1)
points = TensorDataset(x, 3 * x + 1)


class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        return pytorch.DataLoader(points, batch_size=8, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(points, batch_size=128)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"loss": mse_loss(self.model(x), y)}


if __name__ == "__main__":
    with pytorch.init(seed=7) as context:
        trial = LineTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=pytorch.Epoch(20), checkpoint_policy="none", latest_checkpoint="latest")
    print(f"y = {trial.model.weight.item():.2f} x + {trial.model.bias.item():.2f}")
