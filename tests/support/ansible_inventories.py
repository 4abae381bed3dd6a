"""Twelve Ansible inventories, as public projects write theirs: files by their path, and where Ansible begins.

``EXECUTABLE`` holds those that are programs. Jinja is left out: ``ansible-inventory`` does not fill it in.
"""

from __future__ import annotations

from pathlib import Path

INVENTORIES: dict[str, tuple[str, dict[str, str]]] = {
    "ini-with-ranges": ("hosts", {"hosts": """\
# Racks of the first hall
login.example.net ansible_user=ops

[rtx]
gpu[01:04].example.net
gpu[10:14:2].example.net ansible_port=2222
node-[a:c].example.net

[rtx:vars]
ansible_user=audit
ansible_ssh_private_key_file=/etc/keys/audit
"""}),
    "ini-children": ("inventory.ini", {"inventory.ini": """\
[sglang]
gpu01 ansible_host=192.0.2.11
gpu02 ansible_host=192.0.2.12

[vllm]
gpu03 ansible_host=192.0.2.13 ansible_port=2200
gpu02

[serving:children]
sglang
vllm

[site:children]
serving

[site:vars]
ansible_user=root
ansible_become=yes

[vllm:vars]
ansible_user=vllm
"""}),
    "yaml-nested": ("site.yml", {"site.yml": """\
---
all:
  vars:
    ansible_user: deploy
  children:
    gpu:
      vars:
        fleetcheck_expect:
          gpus: 8
          compute_capability: "12.0"
      children:
        blackwell:
          hosts:
            gpu[01:03].lab:
              ansible_port: 2222
        hopper:
          hosts:
            h200-1.lab:
              ansible_host: 198.51.100.7
              ansible_user: root
              fleetcheck_venvs: [/opt/venvs/sglang, running]
    storage:
      hosts:
        nas.lab:
"""}),
    "yaml-without-all": ("production.yaml", {"production.yaml": """\
workers:
  hosts:
    worker1:
      ansible_host: 203.0.113.1
    worker2:
      ansible_host: 203.0.113.2
  vars:
    ansible_ssh_common_args: '-J jump@bastion.example.net:2222'
heads:
  hosts:
    head: {ansible_host: 203.0.113.9}
"""}),
    "folder-with-vars": ("production", {
        "production/hosts": "[gpu]\ngpu01\ngpu02\n\n[gpu_new]\ngpu02\n",
        "production/group_vars/all.yml": "ansible_user: ubuntu\nansible_ssh_private_key_file: ~/.ssh/fleet\n",
        "production/group_vars/gpu/main.yml": "ansible_port: 22022\nfleetcheck_expect: {driver: '>=580'}\n",
        "production/group_vars/gpu/ssh.yml": "ansible_become: true\n",
        "production/host_vars/gpu02.yml": "ansible_host: 192.0.2.2\nansible_user: root\n",
    }),
    "folder-of-files": ("inv.d", {
        "inv.d/01-rack.ini": "[rack1]\nr1n1\nr1n2\n",
        "inv.d/02-rack.yml": "rack2:\n  hosts:\n    r2n1:\n    r2n2: {ansible_port: 2022}\n",
        "inv.d/README.md": "Racks, one file each.\n",
        "inv.d/99-groups": "[all_racks:children]\nrack1\nrack2\n\n[all_racks:vars]\nansible_user=hpc\n",
    }),
    "proxy-command": ("hosts.ini", {"hosts.ini": """\
[private]
10.0.0.[11:13]

[private:vars]
ansible_user=ec2-user
ansible_ssh_common_args='-o ProxyCommand="ssh -W %h:%p -q ec2-user@198.51.100.20" -o StrictHostKeyChecking=no'

[odd]
10.0.1.5 ansible_ssh_extra_args='-o ProxyCommand="nc -X connect -x proxy:3128 %h %p"'
"""}),
    "ssh-arguments": ("hosts.ini", {"hosts.ini": """\
[a]
a1 ansible_ssh_common_args='-F /etc/fleet/ssh_config -i /etc/keys/a'
a2 ansible_ssh_common_args='-o ProxyJump=hop1,hop2 -o ControlMaster=auto -o ControlPersist=60s'
a3 ansible_ssh_extra_args='-J none' ansible_ssh_common_args='-o UserKnownHostsFile=/dev/null'
"""}),
    "local-and-others": ("hosts", {"hosts": """\
localhost ansible_connection=local ansible_python_interpreter=/opt/venvs/tools/bin/python
gpu01 ansible_connection=ssh ansible_python_interpreter=/usr/bin/python3
gpu02 ansible_connection=ansible.builtin.ssh ansible_ssh_host=192.0.2.2 ansible_ssh_port=2222 ansible_ssh_user=old
switch1 ansible_connection=ansible.netcommon.network_cli ansible_network_os=eos
"""}),
    "constructed": ("inv", {
        "inv/hosts.ini": "[gpu]\ngpu01 gpu_model=rtx6000\ngpu02 gpu_model=h200 ansible_port=2222\n",
        "inv/zz_constructed.yml": """\
plugin: ansible.builtin.constructed
strict: true
groups:
  blackwell: gpu_model == 'rtx6000'
keyed_groups:
  - {key: gpu_model, prefix: model}
compose:
  ansible_user: "'audit'"
  ansible_host: inventory_hostname + '.example.net'
"""}),
    "executable": ("cloud.py", {"cloud.py": """\
#!/bin/sh
cat <<'END'
{"_meta": {"hostvars": {"vm1": {"ansible_host": "192.0.2.31", "ansible_user": "cloud"}, "vm2": {}}},
 "cloud": {"hosts": ["vm1", "vm2"], "vars": {"ansible_port": 2222}}, "zone": {"children": ["cloud"]}}
END
"""}),
    "json": ("hosts.json", {"hosts.json": """\
{"all": {"children": {"gpu": {"hosts": {"gpu01": {"ansible_host": "192.0.2.1", "ansible_port": "2222"},
 "gpu02": {"ansible_become": "true"}}, "vars": {"ansible_user": "root", "fleetcheck_sudo": false}}}}}
"""}),
}  # fmt: skip
EXECUTABLE = frozenset({"executable"})


def write(folder: Path, name: str) -> Path:
    """Write one inventory below ``folder`` and return the path to give to ``-i``."""
    first, files = INVENTORIES[name]
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if name in EXECUTABLE:
            file.chmod(0o755)
    return folder / first
