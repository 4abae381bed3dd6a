"""What the CUDA files of trtllm_comm hold in the releases beside comments and conditions on ``__CUDA_ARCH__``.

The conditions are evaluated where they stand. What is left must be a release's: a kernel is emptied by a
``return`` or an ``if constexpr`` as well. Computed over every tag from 0.2.6 to 0.6.18,
and over 0.7.0, 0.7.1, 0.7.2 and 0.7.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetcheck.facts import shape

# A file of the package, and the sha256 of what the agent's rest_of() leaves of it.
RESTS: Mapping[str, frozenset[str]] = {
    "data/include/flashinfer/comm/trtllm_allreduce.cuh": frozenset(
        (
            "a1daa7cc248267e69baea21a1817ad2fe9cc740f6be13a4bc1a6eb8c31729449",  # 0.2.6 to 0.2.6.post1
            "fd1af2409e1638eb1e51662500cbc0a8158ba6aea18d6cd6a1373d25e84f85a2",  # 0.2.7 to 0.6.5
            "7880a2abd929ed00443806ad3b889cbb3b2f1e80e942f9327bcc3cf0ffa6fec9",  # 0.6.6 to 0.6.16.post4
            "8158dbf924cf1b231f2c1f8360eb07fcedafeb48a7ea05a9e73e95869636f163",  # 0.6.17rc1 to 0.7.4
        )
    ),
    "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh": frozenset(
        (
            "03197376e165df990b12c5496ff7fa31214c753267780da5b74928bd6974b4a7",  # 0.2.7 to 0.2.7.post1
            "5ccfc10670df6c197647d5e0b179159d70210a2fc911c270a39bf363770ba2ad",  # 0.2.8rc1
            "c1b0d2a2e54b3bee4e88eeb115e8ba0e7293a8e3f7826e1cede9dbeed0657b0e",  # 0.2.8
            "36e7033467c32deb060088dc225943b4edd7dc77fc0380716786c3883d4c32dc",  # 0.2.9rc1 to 0.2.12
            "934dd315a66655bce354fb4b15e10c8823c3336275e80cb488d40fa344613c8f",  # 0.2.13
            "10b7a2f09021f0fc2201cb2a84d61f19d7fd65e418bc0290ba771c8fb2f1a27a",  # 0.2.14 to 0.2.14.post1
            "84e51cedbaf0bde490582245882a5ac6509f247a9c940a8aca0119619ece31ba",  # 0.3.0rc1 to 0.6.0rc2
            "b0059e87033ab55ca597dd0bc42a3e8400cc1745a905cf872335ea21452d905d",  # 0.6.0 to 0.6.3
            "20cf43713539083454c2d11fbe1a0a8d54a3d56249bef845af2f91e7f2d4bbde",  # 0.6.4 to 0.6.7.post3
            "3ccdff284c857b4fe3c3e2b0b583c7d79c656e9f9ecfeba699a172b76167cc26",  # 0.6.8rc1
            "b1a8fe033f7da21bdab5e15ec15245539bdb3f59845576e84856b505d5444e6d",  # 0.6.8 to 0.6.10.post1
            "0d96be8545ac3a470820cd2f2341a19eb26ac3a8ee27aa82483d9198856a8fbd",  # 0.6.11rc1 to 0.6.11.post3
            "96a7c44ba13ca928e5480ec2ad3dfa73cc410660852fe335a3c213ad7d8591a6",  # 0.6.12rc1 to 0.6.14
            "80d42634888b46cdbbe1340e222e473d1b442bb1577b2a5853da63c2807de8b6",  # 0.6.15rc1 to 0.6.16.post4
            "00e0ef00b84771f10b1bcb165f1e0e1eb1a3141bd75b5c6e9a3279f885fe5946",  # 0.6.17rc1 to 0.7.0
            "e351bed79290c8c15f272b68d2cee70d8a349f4a045dfce082bb56206e20efef",  # 0.7.1
            "cf01e1bc5b12e3a8036ddec4cb0f6abe7b59eff45883159b05b36bd5790b6122",  # 0.7.2
            "5b5ba88d3bba5d608065df4959caf127c031732ab71f0d3a39cc4db81c67aa5f",  # 0.7.4
        )
    ),
    "data/csrc/trtllm_allreduce.cu": frozenset(
        (
            "c3f68d4a2acbc7b4df6c3e0bd03378a0cc5ec6d0725b28f54cba8ffe9bab2dde",  # 0.2.6 to 0.4.0rc3
            "bd1c60725646da47521e5a766154ae101d6c8dc901d454d75fe7f4f059fbdd6e",  # 0.4.0rc4 to 0.4.0
            "e6b0c58381487db0154a2956e28ab95b1b663712eeb59d64897fc455f627273a",  # 0.4.1
            "919cc403dacb1e7f7e4bf89a71b8358436703333919d93aa8dc98bf863a600f7",  # 0.5.0rc1 to 0.5.3
            "dd2ad4e1626c245fe7e1c164964f59b6cc36213b7cb5a01e82d0334bbc24b5e0",  # 0.6.0rc1 to 0.6.16.post4
            "2b770e1e1e1a4978821ad42bfd37dade3eb6b47c2d93c1820ca1e8969db8f1ed",  # 0.6.17rc1 to 0.7.4
        )
    ),
    "data/csrc/trtllm_allreduce_fusion.cu": frozenset(
        (
            "369332fbc17a4b6202444aa4ae89bc8941f957d1155dd43d43f4554b22143b51",  # 0.2.7 to 0.2.8
            "64578d8f1045ff72f4c25a8cc6320521e0965eccfa6cab7cad311bb45b9ccb9a",  # 0.2.9rc1 to 0.2.12
            "1e79cdf7a879b50101c4965c2dc8695cc78667ece3228b156b814b9311b588cd",  # 0.2.13 to 0.4.0rc3
            "13dc539a1b3d1d36417f5f711643d17f8755e614b1839a5b24f142939ae566c8",  # 0.4.0rc4 to 0.4.0
            "7c4bc31ae90e6ecd1416ca8afca77c5267ca8f7b703342e5671c098c8499b8e3",  # 0.4.1
            "e0d52cb4d48a9604e8909fac0ccfb3a2d62c64ac387c3c8bbd823ae626f9c9ee",  # 0.5.0rc1 to 0.5.3
            "b64e46d463d5b414f63c445513653b9ec9027c6f0168327f2caf1342ee453f02",  # 0.6.0rc1 to 0.6.10.post1
            "45ba4bfd271651201b7b32c718710b742f248ea139a5cc76d234877c72954eb0",  # 0.6.11rc1 to 0.6.11.post3
            "3c55dbf3ec334320895fa0f8258bc7ce098fd4c2fa4d62c2b9fb3daace998720",  # 0.6.12rc1 to 0.7.4
        )
    ),
    "data/csrc/trtllm_moe_allreduce_fusion.cu": frozenset(
        (
            "cbeaac61140eab00ff8ff45928c4ceacfa98483fa0633bb4d9f147840951e71e",  # 0.2.7 to 0.2.12
            "2787d76d8ea72ba2e8d30f458c6c7024e56d474ded6c3598c0b6d9a81a239129",  # 0.2.10
            "05f86f4ede1d1fd469afbea73b69b421d2855e82080bc8b93862ad950ff27ee9",  # 0.2.13 to 0.4.0rc3
            "633c7a21936e4d56b0ce4e57364d5fd8c1f3dcbef58b20b0c4229d107f73533f",  # 0.4.0rc4 to 0.4.0
            "f51dd05e7900ba46d79908d771d4055a58a97122985008364f5cd9735d259af1",  # 0.4.1
            "b2a64722c7cc8377c9c732280df7ad6e3995f971a8b6ec97402b312c9f1686a0",  # 0.5.0rc1 to 0.5.3
            "0fd072bdad8b2d2ec8811c153d040f0803a53f97d8265c9a97e209e962ea1f99",  # 0.6.0rc1 to 0.6.7.post3
            "3f58ad5c3f78f0c7e966a1a0375c67dcb2be8a71edf28e3f9078e06f3608579e",  # 0.6.8rc1 to 0.6.11.post3
            "902914f6672878e5c87113db729f160ebf635b9cad9d49b6e5b0288887a254bb",  # 0.6.12rc1 to 0.7.4
        )
    ),
}
LAUNCHERS = tuple(name for name in RESTS if name.endswith(".cu"))


def doubt(files: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """Return why a file that no RECORD vouches for is not known to be a release's, or None.

    Without a RECORD an untouched file of a state between two releases is not known either.
    """
    entry = files.get(name, {})
    rest, record = shape.name(entry.get("rest"), 64), entry.get("record")
    if record in ("match", "missing") or rest is None or rest in RESTS[name]:
        return None
    what = "was edited" if record == "mismatch" else "is not as any known release has it"
    beside = ": beside its conditions it is no release's" if name.endswith(".cuh") else ""
    return f"{name.rpartition('/')[2]} {what}{beside}"
