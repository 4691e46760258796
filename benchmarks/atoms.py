"""Draw the Gabor and shearlet atoms of the paper's Figures 4 and 5, in space and in frequency."""

import argparse

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from segkit.features.wavelets import FAMILIES

SIZE, N_SCALES, N_ANGLES = 128, 3, 8


def draw(name: str, path: str) -> None:
    family = FAMILIES[name]
    atoms = family.atoms((SIZE, SIZE), N_SCALES, N_ANGLES)
    figure, axes = plt.subplots(
        2 * N_SCALES, N_ANGLES, figsize=(N_ANGLES * 1.1, N_SCALES * 2.3), layout="constrained"
    )
    for j in range(N_SCALES):
        for k, angle in enumerate(family.angles(N_ANGLES)):
            response = np.fft.fftshift(np.fft.ifft2(atoms[j, k])).real
            reach = 10 * 2**j
            centre = slice(SIZE // 2 - reach, SIZE // 2 + reach + 1)
            peak = np.abs(response).max()
            axes[2 * j, k].imshow(response[centre, centre], cmap="gray", vmin=-peak, vmax=peak)
            axes[2 * j + 1, k].imshow(np.fft.fftshift(atoms[j, k]), cmap="magma", vmin=0, vmax=1)
            if j == 0:
                axes[0, k].set_title(f"{angle:.1f}°", fontsize=9)
        axes[2 * j, 0].set_ylabel(f"j = {j}\nspace", fontsize=8)
        axes[2 * j + 1, 0].set_ylabel(f"j = {j}\nfrequency", fontsize=8)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(f"{name} atoms: real part in space, Fourier transform below", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("atoms", choices=sorted(FAMILIES))
    parser.add_argument("path", help="PNG file to write")
    options = parser.parse_args()
    draw(options.atoms, options.path)


if __name__ == "__main__":
    main()
