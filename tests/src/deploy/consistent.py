"""What schemas do not see: whether the parts of a manifest mean each other. Prints what does not fit."""

import sys

import yaml


def pods(document):
    spec = document.get("spec", {})
    return [spec["template"]] if "template" in spec else []


def wrong(documents):
    """Yields a sentence for each thing that names what is not there."""
    labels = [pod["metadata"]["labels"] for document in documents for pod in pods(document)]
    named = {(document["kind"], document["metadata"]["name"]) for document in documents}
    # Made by hand, since it holds secrets.
    named.add(("Secret", "oncegate-secrets"))

    def selects(selector):
        return any(selector.items() <= pod.items() for pod in labels)

    for document in documents:
        kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector", {}))
        selector = selector.get("matchLabels", selector)
        if selector and not selects(selector):
            yield f"{kind} {name} selects no pod"
        for pod in pods(document):
            inside = pod["spec"]
            volumes = {volume["name"]: volume for volume in inside["volumes"]}
            volumes |= {claim["metadata"]["name"]: {} for claim in spec.get("volumeClaimTemplates", [])}
            if ("ServiceAccount", inside["serviceAccountName"]) not in named:
                yield f"{kind} {name} has an unknown service account"
            if "serviceName" in spec and ("Service", spec["serviceName"]) not in named:
                yield f"{kind} {name} has an unknown service"
            for volume in volumes.values():
                for source, of, key in (
                    ("configMap", "ConfigMap", "name"),
                    ("secret", "Secret", "secretName"),
                    ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
                ):
                    if source in volume and (of, volume[source][key]) not in named:
                        yield f"{kind} {name} mounts an unknown {of}"
            for container in inside["containers"]:
                yield from in_container(documents, f"{kind} {name}", container, volumes)
            constraints = inside.get("topologySpreadConstraints", [])
            terms = inside.get("affinity", {}).get("podAntiAffinity", {})
            constraints += terms.get("requiredDuringSchedulingIgnoredDuringExecution", [])
            for constraint in constraints:
                if not selects(constraint["labelSelector"]["matchLabels"]):
                    yield f"{kind} {name} keeps away from no pod"
    ports = {port["name"] for d in documents for pod in pods(d) for c in pod["spec"]["containers"] for port in c["ports"]}
    for document in documents:
        if document["kind"] == "Service":
            for port in document["spec"]["ports"]:
                if port["targetPort"] not in ports:
                    yield f"Service {document['metadata']['name']} leads to an unknown port"


def in_container(documents, where, container, volumes):
    keys = {key for document in documents if document["kind"] == "ConfigMap" for key in document["data"]}
    ports = {port["name"] for port in container["ports"]}
    files = [argument.split("=", 1)[1] for argument in container["args"] if argument.startswith(("--policy=", "--keys="))]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            yield f"{where} mounts an unknown volume {mount['name']}"
        if "subPath" in mount and mount["subPath"] not in keys:
            yield f"{where} mounts an unknown file {mount['subPath']}"
    for file in files:
        if file not in mounted:
            yield f"{where} names {file}, which is not mounted"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if container[probe]["httpGet"]["port"] not in ports:
            yield f"{where}: {probe} asks an unknown port"


def main():
    found = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as text:
            documents = [document for document in yaml.safe_load_all(text) if document]
        found += [f"{path}: {one}" for one in wrong(documents)]
    print("\n".join(found))
    sys.exit(1 if found else 0)


main()
